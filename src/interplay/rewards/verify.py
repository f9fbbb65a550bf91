"""Decides whether a mathematical answer is right: reads it from a reply and compares it by meaning, not as a string.

`1/2`, `0.5` and `\\frac12` are one answer. Numbers are compared exactly and at once. Pairs, sets, intervals and so on
are compared part by part (form.py). Formulas are compared by math-verify in a separate process (algebra.py), which is
ended if it takes too long. A hostile answer (giant, empty, several answers at once, a tower of powers) does not count
as an answer. Every function here returns soon, for any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from interplay.rewards import algebra
from interplay.rewards.certainty import asserted, doubted
from interplay.rewards.form import Form, forms
from interplay.rewards.latex import TEXT, closing, latex, plain
from interplay.rewards.quantity import alters, quantity
from interplay.rewards.reply import LONGEST_REPLY, spoken, tidy

LONGEST_ANSWER = 400  # the largest number of characters
MOST_PARTS = 40  # the largest number of parts of a set or a list
MOST_FORMULAS = 12  # the largest number of comparisons by algebra for one answer

# -- reading the answer of a reply ------------------------------------------------------------------------------------

_BOX = re.compile(r"\\(?:f?boxed|fbox|framebox)(?:\s*\{|[ \t]+(?P<bare>[^\s{}$\\.,;]+))")
_HASHES = re.compile(r"#{4,}[ \t]*([^\n#]*)")
_MARK = r"[*_]*"
_STATED = re.compile(
    rf"\b(?:final answer|answer){_MARK}(?:\s+(?:is|was|equals)\b\s*:?|\s*[:=]){_MARK}[ \t]*"
    r"(?:\n\s*)?((?:[^\n.]|\.(?=\S))*)",
    re.IGNORECASE,
)
_MARKERS = re.compile(
    rf"#{{4,}}|(?<=answer){_MARK}(?:\s+(?:is|was|equals)\b\s*:?\s?|\s*[:=]){_MARK}|</?(?:think|thinking|thought|reasoning)>",
    re.IGNORECASE,
)


def boxes(text: str) -> Iterator[str]:
    """The contents of each `\\boxed{…}` with balanced braces; for nested boxes, of the innermost."""
    end = 0
    for start in _BOX.finditer(text):
        if start.start() < end:
            continue
        if start["bare"]:
            yield start["bare"]
            continue
        found = closing(text, start.end() - 1)
        if found is None:
            return
        end, inside = found, text[start.end() : found].strip()
        while (
            (inner := _BOX.match(inside)) and not inner["bare"] and closing(inside, inner.end() - 1) == len(inside) - 1
        ):
            inside = inside[inner.end() : -1].strip()
        yield inside


def boxed(text: str) -> str | None:
    """The contents of the last box."""
    return next(reversed([*boxes(text)]), None) if len(text) <= LONGEST_REPLY else None


def final(reply: str) -> str | None:
    """The one answer of a reply: in a box, else after `####`, else after "the answer is"; None if there is none.

    Thoughts (`<think>…</think>`) do not count. If several answers are given, they must agree: a list of guesses is not
    an answer.

    >>> final("6 * 7 = 42, so the answer is 42."), final("#### 1\\n#### 2"), final("\\\\boxed{}")
    ('42', None, None)
    """
    if len(reply) > LONGEST_REPLY:
        return None
    said = spoken(reply)
    for found in (boxes(said), _sentences(_HASHES.findall(said)), _sentences(_STATED.findall(said))):
        if given := list(dict.fromkeys(tidy(text) for text in found)):
            first = given[0]
            seen = any(c.isprintable() and not c.isspace() for c in first[: LONGEST_ANSWER + 1])  # something is visible
            agree = seen and len(first) <= LONGEST_ANSWER and all(alike(first, other) for other in given[1:])
            return first if agree else None
    return None


def _sentences(found: list[str]) -> Iterator[str]:
    """Answers in a sentence, in which an exclamation mark is not a factorial."""
    return (text.strip().rstrip("*_` ").removesuffix("!") for text in found)


def unmarked(text: str) -> str:
    """The words of another role without the marks that `final` looks for, so that repeating them gives no answer.

    >>> unmarked("So the answer is 4: \\\\boxed{\\\\frac{8}{2}}.")
    'So the answer 4: \\\\frac{8}{2}.'
    """
    text = text[:LONGEST_REPLY]
    while (box := _BOX.search(text)) is not None:
        end = None if box["bare"] else closing(text, box.end() - 1)
        inner = text[box.end() :] if end is None else text[box.end() : end] + text[end + 1 :]
        text = text[: box.start()] + (box["bare"] or "") + inner
    return _MARKERS.sub(" ", text)


# -- comparing --------------------------------------------------------------------------------------------------------


def alike(gold: str, answer: str) -> bool:
    """Whether two answers are the same number or, up to notation, the same text. This needs no algebra."""
    ours, theirs = quantity(gold), quantity(answer)
    if ours is not None and theirs is not None:
        return ours.equals(theirs)
    same = _squeezed(plain(tidy(asserted(gold)))) == _squeezed(plain(tidy(asserted(answer)))) != ""
    return same and doubted(gold) == doubted(answer)


@lru_cache(maxsize=20_000)
def equal(gold: str, answer: str) -> bool:
    """Whether `answer` means the same as `gold`, by value: numbers, formulas, tuples, sets, intervals.

    >>> equal("72", "exactly 72 clips"), equal("1/2", "0.5"), equal("72", "70, 71, 72"), equal("72", "72 I think")
    (True, True, False, False)
    """
    if not answer.strip() or len(answer) > LONGEST_ANSWER or _BOX.search(answer) or algebra.monstrous(answer):
        return False
    if alike(gold, answer):
        return True
    if doubted(answer) and not doubted(gold):
        return False
    comparison = _Comparison()
    return any(comparison.same(ours, theirs) for ours in forms(gold) for theirs in forms(answer))


class _Comparison:
    """One comparison of two answers, with a limit on the number of comparisons by algebra."""

    def __init__(self) -> None:
        self.left = MOST_FORMULAS

    def same(self, gold: Form, answer: Form) -> bool:
        if gold.name and answer.name and gold.name != answer.name:
            return False
        if answer.kind == "relation" and answer.parts:  # 6 * 7 = 42: every side must be right
            return all(self.same(gold, side) for side in answer.parts)
        if gold.kind == "relation" and gold.parts:
            return self.same(gold.parts[-1], answer)
        kinds = {gold.kind, answer.kind}
        if kinds == {"quantity"}:
            assert gold.quantity is not None and answer.quantity is not None
            return gold.quantity.equals(answer.quantity)
        if kinds <= {"quantity", "formula"}:
            return self._formulas(gold, answer)
        if kinds <= {"set", "list"} or kinds == {"union"}:
            return self._unordered(gold.parts, answer.parts)
        if kinds == {"text", "formula"}:  # the choice (E) and the letter E
            return gold.text.casefold() == answer.text.casefold() and len(gold.text) == 1
        if len(kinds) > 1 or gold.text != answer.text or len(gold.parts) != len(answer.parts):
            return False
        return all(self.same(a, b) for a, b in zip(gold.parts, answer.parts, strict=True))

    def _unordered(self, gold: Sequence[Form], answer: Sequence[Form]) -> bool:
        if max(len(gold), len(answer)) > MOST_PARTS:
            return False
        left = list(answer)
        for part in gold:
            found = next((i for i, other in enumerate(left) if self.same(part, other)), None)
            if found is None:
                return False
            del left[found]
        return not left

    def _formulas(self, gold: Form, answer: Form) -> bool:
        units = [form.unit or (form.quantity.unit if form.quantity else "") for form in (gold, answer)]
        if all(units) and units[0] != units[1]:
            return False
        if _squeezed(gold.text) == _squeezed(answer.text):
            return True
        if re.search(r"\d\s+\d", answer.text) or self.left <= 0:  # 1 2 is not 12
            return False
        if any(alters(words) for words in TEXT.findall(answer.text)):  # algebra ignores words
            return False
        self.left -= 1
        return algebra.same(latex(gold.text), latex(answer.text))


def _squeezed(text: str) -> str:
    """The text without spaces, except between digits: 1 2 is not 12."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)

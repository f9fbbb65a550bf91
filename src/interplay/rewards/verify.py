"""Whether an answer is right: numbers and formulas, inference labels, short texts. No torch.

An answer is first *read* from a reply, then compared as what it means and never as a string: `1/2`, `0.5` and
`\\frac12` are one answer. Plain numbers are compared exactly and at once; anything else by math-verify in a process
of its own (`algebra.py`) that is ended when it takes too long. What is hostile (giant, empty, several answers at
once, a tower of powers) is simply not an answer: every function here returns, soon, on any text.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

from interplay.rewards import algebra

LONGEST_REPLY = 20_000  # characters; past it nothing is read
LONGEST_ANSWER = 400

# -- reading the answer of a reply ------------------------------------------------------------------------------------

_BOX = re.compile(r"\\f?boxed\s*\{|\\fbox\s*\{")
_HASHES = re.compile(r"#{4,}[ \t]*([^\n#]*)")
_STATED = re.compile(
    r"\b(?:final answer|answer)(?:\s+(?:is|was|equals)\b\s*:?|\s*[:=])[ \t]*((?:[^\n.]|\.(?=\S))*)", re.IGNORECASE
)
_MARKERS = re.compile(r"#{4,}|(?<=answer)(?:\s+(?:is|was|equals)\b\s*:?\s?|\s*[:=])", re.IGNORECASE)


def boxes(text: str) -> Iterator[str]:
    """What stands in each `\\boxed{…}`, braces balanced."""
    for start in _BOX.finditer(text):
        if (end := _closing(text, start.end())) is None:
            return
        yield text[start.end() : end].strip()


def _closing(text: str, start: int) -> int | None:
    """Where the brace that was opened before `start` is closed."""
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i
    return None


def boxed(text: str) -> str | None:
    """What stands in the last box."""
    return next(reversed([*boxes(text)]), None) if len(text) <= LONGEST_REPLY else None


def final(reply: str) -> str | None:
    """The one answer of a reply: in a box, else after `####`, else after "the answer is"; None if there is none.

    Where several are given they must agree: a list of guesses is no answer.

    >>> final("6 * 7 = 42, so the answer is 42."), final("#### 1\\n#### 2"), final("\\\\boxed{}")
    ('42', None, None)
    """
    if len(reply) > LONGEST_REPLY:
        return None
    for found in (boxes(reply), _HASHES.findall(reply), _STATED.findall(reply)):
        if given := list(dict.fromkeys(_tidy(text) for text in found)):
            first = given[0]
            seen = any(c.isprintable() and not c.isspace() for c in first[: LONGEST_ANSWER + 1])  # not of no width
            agree = seen and len(first) <= LONGEST_ANSWER and all(plain(first, other) for other in given[1:])
            return first if agree else None
    return None


def unmarked(text: str) -> str:
    """The words of another role without what `final` looks for, so that repeating them answers nothing.

    >>> unmarked("So the answer is 4: \\\\boxed{\\\\frac{8}{2}}.")
    'So the answer 4: \\\\frac{8}{2}.'
    """
    text = text[:LONGEST_REPLY]
    while (box := _BOX.search(text)) is not None:
        end = _closing(text, box.end())
        inner = text[box.end() :] if end is None else text[box.end() : end] + text[end + 1 :]
        text = text[: box.start()] + inner
    return _MARKERS.sub(" ", text)


def _tidy(text: str) -> str:
    return text.strip().strip("*_`").rstrip(".,;:! ").strip("*_` ")


# -- numbers and formulas ---------------------------------------------------------------------------------------------

_NUMBER = re.compile(
    r"(?P<sign>[-−–]?)\s*(?:\\?[$€£])?\s*(?P<minus>-?)(?P<whole>\d{1,3}(?:(?:,|\\,|\{,\}|,\\!)\d{3})+|\d+)?"
    r"(?P<part>\.\d+)?(?:\s*/\s*(?P<under>\d+))?\s*(?P<unit>\\?%|\\?\^?\\circ|°|[A-Za-z][A-Za-z ]{0,30})?",
    re.ASCII,
)
_FRACTION = re.compile(r"(-?)\s*\\[dt]?frac\s*(?:\{\s*(-?\d+)\s*\}|(\d))\s*(?:\{\s*(-?\d+)\s*\}|(\d))", re.ASCII)
_NO_UNIT = re.compile(r"\b(?:or|and|to|by|thousand|million|billion|trillion|hundred|dozen|pairs?|half|e|pi|i|x|y|n)\b")
_WRAPPED = re.compile(r"\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]|\\text\{([^{}]*)\}", re.DOTALL)


def number(text: str) -> Fraction | None:
    """A plain number, with or without thousands, currency and unit; None for anything else.

    >>> number("$1,250.50"), number("72 clips"), number("\\\\frac{3}{4}"), number("3 or 4"), number("2x")
    (Fraction(2501, 2), Fraction(72, 1), Fraction(3, 4), None, None)
    """
    text = _tidy(text)
    while (wrapped := _WRAPPED.fullmatch(text)) and (inner := next((g for g in wrapped.groups() if g), "")):
        text = inner.strip()
    if len(text) > 200:
        return None
    if found := _FRACTION.fullmatch(text):
        sign, *parts = found.groups()
        above, under = (int(p) for p in parts if p is not None)
        return Fraction(-above if sign else above, under) if under else None
    match = _NUMBER.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        return None
    unit = (match["unit"] or "").lower()
    if (unit.isalpha() and (len(unit) == 1 or not _spaced(match))) or _NO_UNIT.search(unit):
        return None  # 2x is a product, 3 or 4 a list, 5 thousand another number
    if match["under"] and (int(match["under"]) == 0 or match["part"]):
        return None
    whole = re.sub(r"\D", "", match["whole"] or "") or "0"
    value = Fraction(whole + (match["part"] or "")) / int(match["under"] or 1)
    return -value if bool(match["sign"]) != bool(match["minus"]) else value


def _spaced(match: re.Match[str]) -> bool:
    return match.string[match.start("unit") - 1].isspace()


def plain(gold: str, answer: str) -> bool:
    """Whether two answers are the same number or, up to spaces, the same text: what is known without algebra."""
    ours, theirs = number(gold), number(answer)
    if ours is None or theirs is None:
        return _squeezed(gold) == _squeezed(answer) != ""
    if ("%" in gold) != ("%" in answer) and ours != theirs:  # 50% is 0.5, and as the answer to "what percentage" 50
        ours, theirs = (ours / 100, theirs) if "%" in gold else (ours, theirs / 100)
    return ours == theirs


def _squeezed(text: str) -> str:
    return re.sub(r"\s|\\[,;! ]|\$|\\left|\\right", "", _tidy(text)).replace("\\dfrac", "\\frac").casefold()


@lru_cache(maxsize=20_000)
def equal(gold: str, answer: str) -> bool:
    """Whether `answer` means what `gold` means, by value: numbers, formulas, tuples, sets, intervals.

    >>> equal("72", "72 clips"), equal("1/2", "0.5"), equal("72", "70, 71, 72")
    (True, True, False)
    """
    if not answer.strip() or len(answer) > LONGEST_ANSWER or _BOX.search(answer):
        return False
    if plain(gold, answer):
        return True
    if number(gold) is not None and number(answer) is not None:
        return False
    sides = {value for side in answer.split("=") if (value := number(side)) is not None}
    if len(sides) > 1:  # 71 = 72: two guesses
        return False
    return algebra.same(gold, answer)


# -- labels of language inference -------------------------------------------------------------------------------------

LABELS = ("entailment", "neutral", "contradiction")
_LABEL_WORDS = {
    "entailment": r"entail(?:ment|s|ed)?|supports|supported",
    "neutral": r"neutral|not enough info(?:rmation)?",
    "contradiction": r"contradict(?:ion|s|ed|ory)?|refutes|refuted",
}


def label(reply: str) -> str | None:
    """The one inference label of a reply: after "answer:" where that is said, else the only one named.

    >>> label("So it contradicts. Answer: contradiction"), label("entailment, neutral or contradiction")
    ('contradiction', None)
    """
    if len(reply) > LONGEST_REPLY:
        return None
    stated = [*boxes(reply)] or _STATED.findall(reply)
    where = "\n".join(stated) if stated else reply
    named = [name for name, words in _LABEL_WORDS.items() if re.search(rf"\b(?:{words})\b", where, re.IGNORECASE)]
    return named[0] if len(named) == 1 else None


# -- short texts, as SQuAD and HotpotQA score them --------------------------------------------------------------------

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_CLOSED = {"yes", "no", "noanswer"}


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces (SQuAD's normalisation)."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    return len(answer) <= LONGEST_ANSWER and any(normal(answer) == normal(gold) != "" for gold in golds)


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best overlap of words with a gold answer; yes and no are all or nothing (as in HotpotQA).

    >>> round(f1("the city of Paris", ["Paris"]), 3)
    0.5
    """
    return max((_f1(normal(answer), normal(gold)) for gold in golds), default=0.0) if len(answer) <= 10_000 else 0.0


def _f1(answer: str, gold: str) -> float:
    if answer != gold and (answer in _CLOSED or gold in _CLOSED):
        return 0.0
    ours, theirs = answer.split(), gold.split()
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)

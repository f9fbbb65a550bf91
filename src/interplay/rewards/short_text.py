"""Short answers in words, scored as in SQuAD and HotpotQA: exact match and F1 over words.

Some rules are stricter, because 3.5 is not 35, -5 is not 5, 1/2 is not 12, C++ is not C and $5 is not 5%. Two are less
strict: curly quotes and long dashes count as straight quotes and hyphens, and words may affirm a number, yes or no
(`exactly 5`). Words may not affirm a name: "Just Kids" is not "Kids".
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from interplay.rewards.certainty import asserted

LONGEST = 400  # the largest number of characters in an answer

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_CLOSED = {"yes", "no", "noanswer"}
_KEPT = re.compile(r"(?<=\d)[./:-](?=\d)|(?<![\w.])-(?=\.?\d)|(?<=\w)[+#]+(?!\w)")
_TYPED = str.maketrans("‘’“”‐‑–—−", "''\"\"-----")
_SIGNS = re.compile(r"[%$€£]")


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces; what `_KEPT` names is kept."""
    text = unicodedata.normalize("NFC", text).translate(_TYPED)  # an accent may be a separate character
    kept = {i for found in _KEPT.finditer(text) for i in range(*found.span())}
    text = "".join(c for i, c in enumerate(text) if c not in string.punctuation or i in kept)
    return " ".join(_ARTICLES.sub(" ", text.lower()).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    return len(answer) <= LONGEST and any(_same(answer, gold) for gold in golds)


def _same(answer: str, gold: str) -> bool:
    """Signs of money and percent are compared only if both have some."""
    ours, theirs = _SIGNS.findall(answer), _SIGNS.findall(gold)
    return _said(answer, gold) == normal(gold) != "" and (not ours or not theirs or ours == theirs)


def _said(answer: str, gold: str) -> str:
    """The normal form of an answer, without words that affirm it if the gold answer is a number, yes or no."""
    return normal(asserted(answer) if normal(gold) in _CLOSED or re.match(r"[-$€£]*\.?\d", gold) else answer)


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best overlap of words with a gold answer. For yes and no it is 0 or 1, as in HotpotQA.

    >>> round(f1("the city of Paris", ["Paris"]), 3)
    0.5
    """
    return (
        max((_f1(_said(answer, gold), normal(gold)) for gold in golds), default=0.0) if len(answer) <= 10_000 else 0.0
    )


def _f1(answer: str, gold: str) -> float:
    if answer != gold and (answer in _CLOSED or gold in _CLOSED):
        return 0.0
    ours, theirs = answer.split(), gold.split()
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)

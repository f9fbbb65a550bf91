"""Short answers in words, scored as in SQuAD and HotpotQA: exact match and F1 over words.

One rule is stricter: the point of 3.5 and the sign of -5 are kept, because without them 3.5 would equal 35.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

LONGEST = 400  # the largest number of characters in an answer

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_CLOSED = {"yes", "no", "noanswer"}
_KEPT = re.compile(r"(?<=\d)\.(?=\d)|(?<![\w.])-(?=\.?\d)")


def normal(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces; a number keeps its point and its sign."""
    text = unicodedata.normalize("NFC", text)  # an accent may be a separate character
    kept = {found.start() for found in _KEPT.finditer(text)}
    text = "".join(c for i, c in enumerate(text) if c not in string.punctuation or i in kept)
    return " ".join(_ARTICLES.sub(" ", text.lower()).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    return len(answer) <= LONGEST and any(normal(answer) == normal(gold) != "" for gold in golds)


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best overlap of words with a gold answer. For yes and no it is 0 or 1, as in HotpotQA.

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

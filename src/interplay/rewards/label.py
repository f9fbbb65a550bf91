"""Reads the label of language inference from a reply."""

from __future__ import annotations

import re

from interplay.rewards.certainty import asserted
from interplay.rewards.reply import LONGEST_REPLY, spoken, stated, tidy
from interplay.rewards.verify import boxes

LABELS = ("entailment", "neutral", "contradiction")
_WORDS = {
    "entailment": r"entailment|entails|entailed|supports|supported",
    "neutral": r"neutral|not enough info(?:rmation)?",
    "contradiction": r"contradiction|contradicts|contradicted|contradictory|refutes|refuted",
}
# Only the label: a few words may come before it, and a reason may follow.
_LEAD = (
    r"\W*(?:(?:so|thus|hence|therefore|overall)\W+)?"
    r"(?:(?:the|this|it|evidence|claim|premise|hypothesis|label|answer)\W+)*(?:(?:is|are)\W+)?(?:an?\W+)?"
)
_REST = (
    r"(?:\W+(?:the\W+)?(?:claim|hypothesis|premise))?"
    r"(?:[.!\"'*`)\s]*|\W+(?:because|since|as)\b(?P<reason>[^?]*))"
)
_GIVEN = {name: re.compile(f"{_LEAD}(?:{words}){_REST}", re.I | re.S) for name, words in _WORDS.items()}
_ANY = re.compile(rf"\b(?:{'|'.join(_WORDS.values())})\b", re.IGNORECASE)


def label(reply: str) -> str | None:
    """The single inference label of a reply: after "Answer:" if the reply says this, else on its last line; or None.

    A label that is negated or doubted, or one of several labels, does not count.

    >>> label("So it contradicts. Answer: contradiction"), label("Answer: not neutral"), label("neutral or entailment")
    ('contradiction', None, None)
    """
    if len(reply) > LONGEST_REPLY:
        return None
    said = spoken(reply)
    given = list(dict.fromkeys([*boxes(said)])) or stated(reply)
    if not given:
        lines = [line for line in said.splitlines() if line.strip()]
        given = lines[-1:] if len({m.lower() for m in _ANY.findall(said)}) == 1 else []
    named = {_named(text) for text in given}
    return named.pop() if len(named) == 1 else None


def _named(text: str) -> str | None:
    text = asserted(tidy(text))
    found = [(name, match) for name, pattern in _GIVEN.items() if (match := pattern.fullmatch(text))]
    if len(found) != 1:
        return None
    name, match = found[0]
    return None if _ANY.search(match["reason"] or "") else name

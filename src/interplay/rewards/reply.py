"""Extracts from a reply the part after any thinking, and the answers that it states.

Reasoning models write their thoughts first and end them with `</think>`. Only the text after it counts. If the thoughts
were never ended, nothing is left.
"""

from __future__ import annotations

import re

LONGEST_REPLY = 20_000  # characters; a longer reply is not read

_THOUGHT = r"(?:think|thinking|thought|reasoning)"
_CLOSED = re.compile(rf"</{_THOUGHT}>", re.IGNORECASE)
_OPENED = re.compile(rf"<{_THOUGHT}>", re.IGNORECASE)
_MARK = r"[*_`]*"  # markdown around the word or the colon
# "Answer: …" on one line, or the colon at the end of a line and the answer on the next line that is not empty.
_STATED = re.compile(
    rf"\banswer{_MARK}\s*(?:is{_MARK}\s*)?:{_MARK}[ \t]*(?:([^\n]*[^\s*_`][^\n]*)|{_MARK}\s*\n\s*([^\n]+)|)",
    re.IGNORECASE,
)


def spoken(reply: str) -> str:
    """A reply without its thoughts.

    >>> spoken("<think>4? no, 5</think>It is 5."), spoken("<think>4? no"), spoken("5")
    ('It is 5.', '', '5')
    """
    said = _CLOSED.split(reply)[-1]
    return _OPENED.split(said)[0].strip() if _OPENED.search(said) else said


def stated(reply: str) -> list[str]:
    """The texts after "Answer:", without duplicates; empty if nothing is stated or the reply is too long.

    >>> stated("Is it Oslo?\\n**Answer:** Bergen"), stated("Answer: 1\\nAnswer: 2"), stated("Answer:\\n3")
    (['Bergen'], ['1', '2'], ['3'])
    """
    if len(reply) > LONGEST_REPLY:
        return []
    found = (a or b for a, b in _STATED.findall(spoken(reply)))
    return list(dict.fromkeys(said for text in found if (said := tidy(text))))


def tidy(text: str) -> str:
    """A text without surrounding markdown and punctuation."""
    return text.strip().strip("*_`").rstrip(".,;: \\").strip("*_` ")

"""Finds training rows that repeat a held-out row: the same text, or `GRAM` consecutive words in common."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from interplay.envs.tasks.data import DataRow, Public

GRAM = 13
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")


@dataclass(frozen=True)
class Overlap:
    """A training row and the held-out row that it repeats."""

    row: str
    of: str  # the split, or the folder and the split
    other: str
    exact: bool


def text_key(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _grams(text: str) -> Iterator[int]:
    words = [w for word in text_key(text).split() if (w := _EDGES.sub("", word))]
    for i in range(len(words) - GRAM + 1):
        yield hash(tuple(words[i : i + GRAM]))


Texts = list[tuple[str, str]]  # for each row, its id and the text by which it is compared


def texts_of(cls: type[Public], rows: Sequence[DataRow]) -> Texts:
    return [(row["id"], cls.compared(row)) for row in rows]


def overlaps(cls: type[Public], rows: Sequence[DataRow], held: Mapping[str, Texts]) -> Iterator[Overlap]:
    """Every training row that repeats a held-out row, with the first held-out row that it repeats."""
    equal: dict[str, tuple[str, str]] = {}
    grams: dict[int, tuple[str, str]] = {}
    for of, others in held.items():
        for other, text in others:
            equal.setdefault(text_key(text), (of, other))
            for gram in _grams(text):
                grams.setdefault(gram, (of, other))
    for row in rows:
        text = cls.compared(row)
        if found := equal.get(text_key(text)):
            yield Overlap(row["id"], *found, exact=True)
        elif found := next((grams[g] for g in _grams(text) if g in grams), None):
            yield Overlap(row["id"], *found, exact=False)

"""A small BM25 index over passages, for a search tool.

Okapi BM25 with Lucene's idf. The weights of a word are computed when it is first used, so a query only adds up a few
arrays. Passages with equal scores are in the order of the corpus, so results depend only on the corpus and the query.
If not all passages with an equal score can be returned, none of them is: a query that fits many passages equally well
says nothing about any of them, and a blind query would otherwise find some by chance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

K1, B = 1.5, 0.75
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    ("a", "an", "and", "are", "as", "at", "by", "for", "in", "is", "it", "of", "on", "or", "the", "to", "was")
)


def words(text: str) -> list[str]:
    return [w for w in _WORD.findall(text.casefold()) if w not in _COMMON]


class Index:
    """`search` returns the indices of the best passages."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.lengths: list[int] = []
        self.places: dict[str, list[int]] = {}
        self.times: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            count = Counter(words(text))
            self.lengths.append(sum(count.values()))
            for word, times in count.items():
                self.places.setdefault(word, []).append(place)
                self.times.setdefault(word, []).append(times)
        self.mean = max(1.0, sum(self.lengths) / max(1, len(texts)))
        self.size = len(texts)
        self.weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # for words that were used in a query

    def search(self, query: str, count: int) -> list[int]:
        """At most `count` indices, best first; only passages that share a word with the query, and that it prefers to
        all that are left out."""
        scores = np.zeros(self.size)
        for word in dict.fromkeys(words(query[:1_000])):
            if word in self.places:
                at, weights = self._weighted(word)
                scores[at] += weights
        found = np.flatnonzero(scores)
        ranked = found[np.lexsort((found, -scores[found]))]
        best, rest = ranked[:count], ranked[count:]
        if len(rest):
            best = best[scores[best] > scores[rest[0]] * (1 + 1e-9)]
        return [int(place) for place in best]

    def _weighted(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        if word not in self.weights:
            at, often = np.array(self.places[word]), np.array(self.times[word], dtype=np.float64)
            lengths = np.array([self.lengths[place] for place in self.places[word]])
            idf = np.log(1 + (self.size - len(at) + 0.5) / (len(at) + 0.5))
            norm = K1 * (1 - B + B * lengths / self.mean)
            self.weights[word] = (at, idf * often * (K1 + 1) / (often + norm))
        return self.weights[word]

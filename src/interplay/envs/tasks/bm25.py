"""A small BM25 index over passages: what a search tool searches.

Okapi BM25 with Lucene's idf, weights computed once when it is built: a query sums a few arrays. Ties go to the earlier
passage, so results do not depend on anything but the corpus and the query.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
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
    """`search` gives the places of the best passages."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(words(text)) for text in texts]
        lengths = np.array([sum(c.values()) for c in counts], dtype=np.float64)
        norm = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean()) if len(texts) else 1.0))
        places: dict[str, list[int]] = defaultdict(list)
        times: dict[str, list[int]] = defaultdict(list)
        for place, count in enumerate(counts):
            for word, n in count.items():
                places[word].append(place)
                times[word].append(n)
        self.size = len(texts)
        self.postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, found in places.items():
            at, often = np.array(found), np.array(times[word], dtype=np.float64)
            idf = np.log(1 + (self.size - len(found) + 0.5) / (len(found) + 0.5))
            self.postings[word] = (at, idf * often * (K1 + 1) / (often + norm[at]))

    def search(self, query: str, count: int) -> list[int]:
        """At most `count` places, best first; only passages that share a word with the query."""
        scores = np.zeros(self.size)
        for word in dict.fromkeys(words(query[:1_000])):
            if word in self.postings:
                at, weights = self.postings[word]
                scores[at] += weights
        found = np.flatnonzero(scores)
        best = found[np.lexsort((found, -scores[found]))][:count]
        return [int(place) for place in best]

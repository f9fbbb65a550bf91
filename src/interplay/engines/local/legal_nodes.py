"""The tries of legal replies on the GPU, so that masked replies are sampled there like all others."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from interplay.engines.local.scheduler import LegalTrie, Sequence
from interplay.models import kernels
from interplay.models.staging import staged


class LegalNodes:
    """The tries of the replies that are sampled now, laid one after the other in the GPU's arrays. Replies with equal
    legal sets share a trie, which stays until there is no room left for a new one."""

    def __init__(self, tries: kernels.Tries) -> None:
        self._tries, self._room = tries, len(tries.tokens)
        self._refused: dict[int, LegalTrie] = {}  # by identity: tries that the arrays or the kernel cannot take
        self._clear()

    def _clear(self) -> None:
        self._used = 0
        self._nodes: dict[int, int] = {}  # by the identity of a trie's node: its place in the arrays
        self._depths: dict[int, int] = {}  # by the identity of a root: the length of the longest reply
        self._roots: list[LegalTrie] = []  # as long as they are kept, no other object has the identity of their nodes

    def place(self, sequences: Iterable[Sequence]) -> None:
        """Bring the tries of these sequences to the GPU, except those that are too large."""
        needed = {id(s.legal): s.legal for s in sequences if s.legal is not None}
        new = [trie for name, trie in needed.items() if name not in self._depths and name not in self._refused]
        if not new or not self._lay(new):
            return
        self._clear()  # no room: keep only what is needed now
        self._refused = {name: trie for name, trie in needed.items() if name in self._refused}
        for trie in self._lay([trie for name, trie in needed.items() if name not in self._refused]):
            self._refused[id(trie)] = trie

    def has(self, sequence: Sequence) -> bool:
        """Whether the sequence's replies are on the GPU, or all replies are legal."""
        return sequence.legal is None or id(sequence.legal) in self._depths

    def node(self, sequence: Sequence) -> int:
        """Where a sequence is in its trie; -1 if all replies are legal."""
        node = sequence.legal
        if node is None:
            return -1
        for token in sequence.tokens:
            node = node[token]
        return self._nodes[id(node)]

    def left(self, sequence: Sequence) -> int:
        """The largest number of tokens that the sequence may still get."""
        longest = sequence.request.sampling.max_tokens
        if sequence.legal is not None:
            longest = self._depths[id(sequence.legal)]
        return longest - len(sequence.tokens)

    def _lay(self, tries: Iterable[LegalTrie]) -> list[LegalTrie]:
        """Lay new tries and copy them to the GPU. Returns those for which there is no room."""
        begin, over = self._used, list[LegalTrie]()
        tokens, firsts, fans = list[int](), list[int](), list[int]()
        for trie in tries:
            level, depth = [trie], 0
            nodes, words = list[LegalTrie](), [0]
            while level:  # one level after the other, so that the nodes that follow a node are beside each other
                nodes += level
                after = [sorted(node.items()) for node in level]
                words += [token for pairs in after for token, _ in pairs]
                level, depth = [node for pairs in after for _, node in pairs], depth + 1
            counts = [len(node) for node in nodes]
            if max(counts) > kernels.FAN:
                self._refused[id(trie)] = trie
                continue
            if self._used + len(nodes) > self._room:
                over.append(trie)
                continue
            tokens += words
            fans += counts
            firsts += (np.cumsum([1, *counts[:-1]]) + self._used).tolist()
            self._nodes |= zip(map(id, nodes), range(self._used, self._used + len(nodes)), strict=True)
            self._depths[id(trie)] = depth - 1
            self._roots.append(trie)
            self._used += len(nodes)
        for array, column in zip(self._tries, (tokens, firsts, fans), strict=True):
            array[begin : self._used].copy_(staged(np.array(column, np.int32), array.device), non_blocking=True)
        return over

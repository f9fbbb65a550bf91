"""Keeps track of the blocks of the key-value cache. There are no tensors here.

Blocks are reference-counted. A full block can be found by the hash of all tokens up to its end, so a later prompt with
the same beginning reuses it. This holds after its owner is done too, until the space is needed. Block 0 is scratch
space for padding and is never allocated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class BlockCache:
    def __init__(self, blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.total = blocks - 1
        self._refs = [0] * blocks
        self._free: OrderedDict[int, None] = OrderedDict((b, None) for b in range(1, blocks))  # oldest first
        self._by_hash: dict[int, int] = {}
        self._hash_of: dict[int, int] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` blocks with one reference each. The caller must check `free` first."""
        out = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._refs[block] = 1
            out.append(block)
        return out

    def retain(self, blocks: Sequence[int]) -> None:
        for b in blocks:
            self._refs[b] += 1
            self._free.pop(b, None)

    def release(self, blocks: Sequence[int]) -> None:
        for b in reversed(blocks):  # so that a sequence's tail is overwritten before its beginning
            self._refs[b] -= 1
            if self._refs[b] == 0:
                self._free[b] = None

    def hashes(self, ids: Sequence[int], before: Sequence[int] = (), salt: int = 0) -> list[int]:
        """The hash of each full block of `ids`, made from its content and everything before it. `before` holds the
        hashes that are known already. Different salts give different hashes, so different weights share nothing."""
        size, out = self.block_size, list(before)
        chain = out[-1] if out else hash((salt, "start"))
        for end in range(size * (len(out) + 1), len(ids) + 1, size):
            chain = hash((chain, tuple(ids[end - size : end])))
            out.append(chain)
        return out

    def match(self, hashes: Sequence[int]) -> list[int]:
        """The cached blocks of the longest matching run of hashes from the start (no reference is taken)."""
        found: list[int] = []
        for h in hashes:
            block = self._by_hash.get(h)
            if block is None:
                break
            found.append(block)
        return found

    def remember(self, hashes: Sequence[int], blocks: Sequence[int]) -> None:
        """Make full blocks findable by their hashes. If a content is known already, its first block is kept."""
        for h, block in zip(hashes, blocks, strict=False):
            if h not in self._by_hash and block not in self._hash_of:
                self._by_hash[h] = block
                self._hash_of[block] = h

    def flush(self) -> None:
        """Forget all hashes, because the weights changed: nothing cached is reused. Blocks in use stay in use."""
        self._by_hash.clear()
        self._hash_of.clear()

    def _forget(self, block: int) -> None:
        h = self._hash_of.pop(block, None)
        if h is not None:
            del self._by_hash[h]

"""New tokens of several sequences, packed for one pass over a model on a GPU.

A pass reads its inputs from fixed places in the GPU's memory, so that a CUDA graph can compute it. Without a graph, the
host starts a few hundred kernels one by one. That takes milliseconds. If another thread of Python is busy, it takes
much longer, because that thread may run after each start.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from interplay.engines.local.runner import NewTokens
from interplay.models import kernels
from interplay.models.staging import staged

MOST = 2048  # tokens of a pass; the graph of a larger one would keep more memory
SEQUENCES = 128  # parts of sequences in a pass
_SIZES = (64, 128, 256, 512, 768, 1024, 1536, MOST)


def padded(tokens: int) -> int:
    """The size of the graph for so many tokens. There are few sizes, because capturing a graph takes time."""
    return next(size for size in _SIZES if size >= tokens)


def passes(new: Seq[NewTokens]) -> Iterator[list[NewTokens]]:
    """Divide new tokens into passes, in their order. A sequence may be cut: its second part then reads the keys and
    values that its first part stored."""
    part, room = list[NewTokens](), MOST
    for prompt, blocks, start, ids in new:
        at = 0
        while at < len(ids):
            if not room or len(part) == SEQUENCES:
                yield part
                part, room = [], MOST
            cut = ids[at : at + room]
            part.append(NewTokens(prompt, blocks, start + at, cut))
            at, room = at + len(cut), room - len(cut)
    if part:
        yield part


def tiles(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide sequences into tiles; `counts` has the number of new tokens of each sequence. Returns for each tile its
    sequence, and its first token."""
    each = -(-counts // kernels.PREFILL_ROWS)
    row = np.repeat(np.arange(len(counts)), each)
    return row, (np.arange(len(row)) - (np.cumsum(each) - each)[row]) * kernels.PREFILL_ROWS


class PassInputs(NamedTuple):
    """The inputs of a pass on the GPU. After the last token there is padding, whose keys go to slot 0, which nobody
    reads."""

    ids: Tensor
    positions: Tensor
    slots: Tensor
    adapters: Tensor
    where: kernels.Tiles


class Pack:
    """The places of a pass on the GPU. All inputs are in one piece of memory, so that one copy fills them."""

    def __init__(self, pages: int, device: torch.device) -> None:
        """A sequence has at most `pages` blocks."""
        self._memory = torch.zeros(sum(_sizes(MOST)) + SEQUENCES * pages, dtype=torch.int32, device=device)

    def inputs(self, size: int) -> PassInputs:
        """The inputs of a pass with this number of tokens, at the places from which its graph reads them."""
        sizes = _sizes(size)
        ids, positions, slots, adapters, *where = self._memory[: sum(sizes)].split(sizes)
        return PassInputs(ids, positions, slots, adapters, kernels.Tiles(self._memory[sum(sizes) :], *where))

    def fill(self, new: Seq[NewTokens], adapters: np.ndarray, size: int) -> None:
        """Copy a pass to its places. `adapters` has the adapter of each of the `new` sequences; -1: none."""
        counts, starts = np.array([len(n.ids) for n in new]), np.array([n.start for n in new])
        pages = -(-(starts + counts) // kernels.PAGE)
        table = np.fromiter(chain.from_iterable(n.blocks[:p] for n, p in zip(new, pages, strict=True)), np.int32)
        first, offset = np.cumsum(pages) - pages, np.cumsum(counts) - counts
        row = np.repeat(np.arange(len(new)), counts)
        positions = np.arange(len(row)) - offset[row] + starts[row]
        slots = table[first[row] + positions // kernels.PAGE] * kernels.PAGE + positions % kernels.PAGE
        ids = np.fromiter(chain.from_iterable(n.ids for n in new), np.int32, len(row))
        columns = ids, positions, slots, adapters[row], *tiles(counts), first, offset, starts, counts
        sizes, idle = _sizes(size), (0, 0, 0, -1, -1, 0, 0, 0, 0, 0)
        memory = np.empty(sum(sizes) + len(table), np.int32)
        at = 0
        for values, room, rest in zip(columns, sizes, idle, strict=True):
            memory[at : at + len(values)] = values
            memory[at + len(values) : at + room] = rest
            at += room
        memory[at:] = table
        self._memory[: len(memory)].copy_(staged(memory, self._memory.device), non_blocking=True)


def _sizes(size: int) -> list[int]:
    """The length of each column of a pass of `size` tokens. All are multiples of 32, because kernels are compiled for
    columns whose addresses are multiples of 16 bytes."""
    most = size // kernels.PREFILL_ROWS + min(size, SEQUENCES)
    return [size] * 4 + [-(-most // 32) * 32] * 2 + [SEQUENCES] * 4

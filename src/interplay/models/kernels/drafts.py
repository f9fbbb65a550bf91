"""Speculative sampling on the GPU: drafts are looked up, computed and accepted there, without the host.

A draft is what followed the longest earlier occurrence of a sequence's last tokens in a text that belongs to it
(`engines/local/draft_texts.py` says which texts these are). Every sequence has `width` rows, one after the other. The
first row holds the sequence's latest token and its state; the others get the tokens of the draft. Each row samples the
token that follows its own. A sequence keeps these tokens up to the first one that differs from its draft.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from interplay.models.kernels.launch import PAGE
from interplay.models.kernels.sampling import Rows, sample

NOTHING = -1  # in a text: no token, as between two texts
_PARTS = 16  # programs that search the text of one sequence
_BLOCK = 512  # places that a program looks at in one step
_PLACE = (1 << 40) - 1  # the bits of a score that hold the place


@triton.jit
def _search(
    text, begins, ends, tails, active, best, WIDTH: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    alive = tl.load(active + b * WIDTH) != 0
    tail = tl.load(tails + b)
    begin = tl.load(begins + b)
    end = tl.where(alive, tl.load(ends + b), begin)
    part = tl.cdiv(tl.cdiv(end - begin, PARTS), BLOCK) * BLOCK
    low = begin + tl.program_id(1) * part
    high = tl.minimum(end, low + part)
    found = tl.zeros([BLOCK], tl.int64)
    for start in range(low, high, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = place < high
        equal = tl.load(text + place, mask=inside, other=-1) >= 0  # some token follows
        length = tl.zeros([BLOCK], tl.int64)
        for i in tl.static_range(1, DEPTH + 1):
            mine = tl.load(text + tail - i)
            theirs = tl.load(text + place - i, mask=inside, other=-1)
            equal = equal & (theirs == mine) & (mine >= 0)
            length += equal.to(tl.int64)
        # The longest match wins, and of equally long ones the last.
        found = tl.maximum(found, tl.where(length > 0, (length << 40) + place, 0))
    tl.store(best + b * PARTS + tl.program_id(1), tl.max(found, 0))


@triton.jit
def _spread(
    text, best, drafts, drafted, ids, positions, slots, seen, lengths, counts, limits, active, stops, table,
    table_stride, PLACE: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, STOPS: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    head = b * WIDTH
    score = tl.max(tl.load(best + b * PARTS + tl.arange(0, PARTS)), 0)
    place = score & PLACE
    here = tl.load(active + head) != 0
    length = tl.load(lengths + head)
    count = tl.load(counts + head)
    limit = tl.load(limits + head)
    token = tl.load(ids + head)
    made = 0
    for j in tl.static_range(WIDTH):
        row = head + j
        if j > 0:
            token = tl.load(text + place + j - 1, mask=here & (score > 0), other=-1).to(tl.int64)
            stop = tl.sum((tl.load(stops + head * STOPS + tl.arange(0, STOPS)) == token).to(tl.int32), 0) > 0
            here = here & (token >= 0) & (~stop) & (count + j < limit)
            tl.store(drafts + row - 1, tl.where(here, token, -1))
            tl.store(counts + row, count + j)
            made += here.to(tl.int32)
        at = length - 1 + j
        tl.store(ids + row, tl.where(here, token, 0))
        tl.store(positions + row, tl.where(here, at, 0).to(tl.int64))
        page = tl.load(table + row * table_stride + at // PAGE, mask=here, other=0)
        tl.store(slots + row, tl.where(here, page * PAGE + at % PAGE, 0).to(tl.int64))
        tl.store(seen + row, tl.where(here, at + 1, 0))
    tl.store(drafts + head + WIDTH - 1, -1)
    tl.store(drafted + b, tl.load(drafted + b) + made)


@triton.jit
def _accept(
    tokens, logprobs, drafts, text, tails, produced, accepted, out_tokens, out_logprobs, out_stride, ids, lengths,
    counts, limits, active, stops, WIDTH: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    head = b * WIDTH
    alive = tl.load(active + head) != 0
    limit = tl.load(limits + head)
    count = tl.load(counts + head)
    length = tl.load(lengths + head)
    made = tl.load(produced + b)
    tail = tl.load(tails + b)
    right = tl.load(accepted + b)
    going = alive
    for j in tl.static_range(WIDTH):
        token = tl.load(tokens + head + j)
        tl.store(out_tokens + b * out_stride + made, token, mask=going)
        tl.store(out_logprobs + b * out_stride + made, tl.load(logprobs + head + j), mask=going)
        tl.store(text + tail, token, mask=going)
        tl.store(ids + head, token.to(tl.int64), mask=going)
        new = going.to(tl.int32)
        made, tail, count, length = made + new, tail + new, count + new, length + new
        stop = tl.sum((tl.load(stops + head * STOPS + tl.arange(0, STOPS)) == token).to(tl.int32), 0) > 0
        ended = stop | (count >= limit)
        alive = alive & (~(going & ended))
        going = going & (~ended) & (token == tl.load(drafts + head + j))
        right += going.to(tl.int32)
    tl.store(produced + b, made)
    tl.store(tails + b, tail)
    tl.store(accepted + b, right)
    tl.store(counts + head, count)
    tl.store(lengths + head, length)
    tl.store(active + head, alive.to(tl.int32))


class Lookup:
    """Looks up drafts of at most `width - 1` tokens for up to `seats` sequences. `tokens` is the room for their texts
    together, and `depth` the largest number of last tokens that are compared. The host reads the sampled tokens after
    at most `steps` steps."""

    def __init__(self, seats: int, width: int, depth: int, tokens: int, steps: int, device: torch.device) -> None:
        def new(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.width, self.depth, self.steps = width, depth, steps
        self.text = torch.full((tokens,), NOTHING, dtype=torch.int32, device=device)
        # For each sequence: where the texts that are searched begin and end, and the place after its own latest token.
        self.spots = new(3, seats, dtype=torch.int64)
        # Since the host last read them: tokens that were sampled, that were drafted, and drafts that were right.
        self.told = new(3, seats)
        self.out_tokens = new(seats, steps * width)
        self.out_logprobs = new(seats, steps * width, dtype=torch.float32)
        self._best = new(seats, _PARTS, dtype=torch.int64)
        self._drafts, self._tokens = new(seats * width), new(seats * width)
        self._logprobs = new(seats * width, dtype=torch.float32)

    def draft(self, rows: Rows, seats: int) -> None:
        """Look up a draft for each of the first `seats` sequences, and set the rows to compute."""
        begins, ends, tails = self.spots
        _search[(seats, _PARTS)](
            self.text, begins, ends, tails, rows.active, self._best,
            WIDTH=self.width, DEPTH=self.depth, PARTS=_PARTS, BLOCK=_BLOCK,
        )  # fmt: skip
        _spread[(seats,)](
            self.text, self._best, self._drafts, self.told[1], rows.ids, rows.positions, rows.slots, rows.seen,
            rows.lengths, rows.counts, rows.limits, rows.active, rows.stops, rows.table, rows.table.stride(0),
            PLACE=_PLACE, WIDTH=self.width, PARTS=_PARTS, STOPS=rows.stops.shape[1], PAGE=PAGE, num_warps=1,
        )  # fmt: skip

    def accept(self, logits_TV: Tensor, rows: Rows, seats: int) -> None:
        """Sample a token for each row. Keep those of a sequence up to the first one that differs from its draft."""
        sample(logits_TV, rows, seats * self.width, self._tokens, self._logprobs)
        _accept[(seats,)](
            self._tokens, self._logprobs, self._drafts, self.text, self.spots[2], self.told[0], self.told[2],
            self.out_tokens, self.out_logprobs, self.out_tokens.stride(0), rows.ids, rows.lengths, rows.counts,
            rows.limits, rows.active, rows.stops, WIDTH=self.width, STOPS=rows.stops.shape[1], num_warps=1,
        )  # fmt: skip

"""Computes logits, samples the next token and updates the state of every sequence, all on the GPU without the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from interplay.models.kernels.launch import PAGE, power
from interplay.models.kernels.products import wide_product

CHUNK = 4096  # logits per program of the sampler
FAN = 1024  # the most tokens that may follow a node of a trie of legal replies


def logits(hidden_TC: Tensor, weight_VC: Tensor) -> Tensor:
    """The logits in fp32. In bf16 a logit of 20 has an error of up to ±0.06, so two ways of computing it would differ
    by as much."""
    return wide_product(hidden_TC, weight_VC)


@triton.jit
def _stats(logits, V, temperatures, peaks, sums, bests, CHUNKS: tl.constexpr, CHUNK: tl.constexpr):
    b = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    i = chunk * CHUNK + tl.arange(0, CHUNK)
    heat = tl.load(temperatures + b)
    x = tl.load(logits + b * V + i, mask=i < V, other=float("-inf")).to(tl.float32)
    x = x / tl.where(heat == 0, 1.0, heat)
    peak = tl.max(x, 0)
    anchor = tl.where(peak > float("-inf"), peak, 0.0)
    tl.store(peaks + b * CHUNKS + chunk, peak)
    tl.store(sums + b * CHUNKS + chunk, tl.sum(tl.exp(x - anchor), 0))
    tl.store(bests + b * CHUNKS + chunk, tl.min(tl.where(x == peak, i, V), 0))


@triton.jit
def _draw(logits, V, draw, heat, peaks, sums, bests, CHUNKS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr):
    """A token and its log-prob. `logits` and the parts of its chunks are those of one row."""
    # Choose a chunk by the chunks' weights, then an entry in it.
    c = tl.arange(0, WIDTH)
    peak = tl.load(peaks + c, mask=c < CHUNKS, other=float("-inf"))
    top = tl.max(peak, 0)
    weight = tl.load(sums + c, mask=c < CHUNKS, other=0.0) * tl.exp(peak - top)
    heavy = weight.to(tl.float64)
    running = tl.cumsum(heavy, 0)
    total = tl.sum(heavy, 0)
    target = draw * total
    chunk = tl.sum((running <= target).to(tl.int32), 0)
    chunk = tl.minimum(chunk, tl.max(tl.where(weight > 0, c, 0), 0))
    before = tl.sum(tl.where(c < chunk, heavy, 0.0), 0)
    i = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + i, mask=i < V, other=float("-inf")).to(tl.float32)
    x = x / tl.where(heat == 0, 1.0, heat)
    mass = tl.exp(x - top)
    inner = tl.cumsum(mass, 0)
    rest = (target - before).to(tl.float32)
    place = tl.sum((inner <= rest).to(tl.int32), 0)
    place = tl.minimum(place, tl.max(tl.where(mass > 0, tl.arange(0, CHUNK), 0), 0))
    chosen = chunk * CHUNK + place
    logit = tl.sum(tl.where(i == chosen, x, 0.0), 0)
    logprob = logit - top - tl.log(total.to(tl.float32))
    best = tl.min(tl.where(peak == top, tl.load(bests + c, mask=c < CHUNKS, other=V), V), 0)
    return tl.where(heat == 0, best, chosen).to(tl.int64), logprob


@triton.jit
def _draw_legal(logits, draw, heat, node, node_tokens, node_firsts, node_fans, FAN: tl.constexpr):
    """A token that may follow `node` of a trie of legal replies, its log-prob among those tokens, and its node."""
    f = tl.arange(0, FAN)
    first = tl.load(node_firsts + node)
    legal = f < tl.load(node_fans + node)
    word = tl.load(node_tokens + first + f, mask=legal, other=0).to(tl.int64)  # in the order of their ids
    x = tl.load(logits + word, mask=legal, other=float("-inf")).to(tl.float32)
    x = x / tl.where(heat == 0, 1.0, heat)
    top = tl.max(x, 0)
    mass = tl.where(legal, tl.exp(x - top), 0.0).to(tl.float64)
    total = tl.sum(mass, 0)
    drawn = tl.sum((tl.cumsum(mass, 0) <= draw * total).to(tl.int32), 0)
    drawn = tl.minimum(drawn, tl.max(tl.where(mass > 0, f, 0), 0))
    best = tl.min(tl.where(legal & (x == top), f, FAN), 0)
    place = tl.where(heat == 0, best, drawn)
    logprob = tl.sum(tl.where(f == place, x, 0.0), 0) - top - tl.log(total.to(tl.float32))
    return tl.sum(tl.where(f == place, word, 0), 0), logprob, first + place


@triton.jit
def _pick(
    logits, V, temperatures, peaks, sums, bests, seeds, counts, limits, stops, active, produced,
    out_tokens, out_logprobs, out_stride, ids, lengths, positions, slots, seen, table, table_stride,
    nodes, node_tokens, node_firsts, node_fans,
    CHUNKS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, STOPS: tl.constexpr, PAGE: tl.constexpr,
    FAN: tl.constexpr, ADVANCE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    heat = tl.load(temperatures + b)
    count = tl.load(counts + b)
    node = tl.load(nodes + b)
    # One uniform per (seed, position): splitmix64, as in sampler.uniforms.
    z = tl.load(seeds + b).to(tl.uint64) + (count + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = z ^ (z >> 31)
    draw = (z >> 11).to(tl.float64) * (1.0 / 9007199254740992.0)
    if node >= 0:
        token, logprob, node = _draw_legal(
            logits + b * V, draw, heat, node, node_tokens, node_firsts, node_fans, FAN
        )  # fmt: skip
        ended = tl.load(node_fans + node) == 0
    else:
        token, logprob = _draw(
            logits + b * V, V, draw, heat, peaks + b * CHUNKS, sums + b * CHUNKS, bests + b * CHUNKS,
            CHUNKS, WIDTH, CHUNK,
        )  # fmt: skip
        s = tl.arange(0, STOPS)
        ended = tl.sum((tl.load(stops + b * STOPS + s) == token).to(tl.int32), 0) > 0
    logprob = tl.where(heat == 0, 0.0, logprob)
    if not ADVANCE:
        tl.store(out_tokens + b, token.to(tl.int32))
        tl.store(out_logprobs + b, logprob)
    else:
        # Advance the sequence, unless it has ended already.
        alive = tl.load(active + b) != 0
        made = tl.load(produced + b)
        tl.store(out_tokens + b * out_stride + made, token.to(tl.int32), mask=alive)
        tl.store(out_logprobs + b * out_stride + made, logprob, mask=alive)
        tl.store(produced + b, made + 1, mask=alive)
        tl.store(counts + b, count + 1, mask=alive)
        going = alive & (~ended) & (count + 1 < tl.load(limits + b))
        tl.store(active + b, going.to(tl.int32))
        length = tl.load(lengths + b)
        tl.store(nodes + b, node, mask=going)
        tl.store(ids + b, token, mask=going)
        tl.store(lengths + b, length + 1, mask=going)
        tl.store(positions + b, length.to(tl.int64), mask=going)
        page = tl.load(table + b * table_stride + length // PAGE, mask=going, other=0)
        tl.store(slots + b, tl.where(going, page * PAGE + length % PAGE, 0).to(tl.int64))
        tl.store(seen + b, tl.where(going, length + 1, 0))


def sample_and_advance(logits_BV: Tensor, rows: Rows, size: int) -> None:
    """Sample a token for each of the first `size` rows and advance their state."""
    _sample(logits_BV, rows, size, rows.out_tokens, rows.out_logprobs, True)


def sample(logits_BV: Tensor, rows: Rows, size: int, tokens_B: Tensor, logprobs_B: Tensor) -> None:
    """Sample a token for each of the first `size` rows into `tokens_B`. The rows stay as they are."""
    _sample(logits_BV, rows, size, tokens_B, logprobs_B, False)


def _sample(logits_BV: Tensor, rows: Rows, size: int, out_tokens: Tensor, out_logprobs: Tensor, advance: bool) -> None:
    """One pass over the logits gives the log-sum-exp of every chunk; then only the chosen chunk is read, or only the
    legal tokens of a masked row. As on a CPU, one uniform number per (seed, position) goes through the inverse of the
    CDF."""
    V = logits_BV.shape[1]
    chunks = triton.cdiv(V, CHUNK)
    peaks = torch.empty((size, chunks), dtype=torch.float32, device=logits_BV.device)
    sums = torch.empty_like(peaks)
    bests = torch.empty_like(peaks, dtype=torch.int32)
    _stats[(size, chunks)](logits_BV, V, rows.temperatures, peaks, sums, bests, CHUNKS=chunks, CHUNK=CHUNK, num_warps=8)
    _pick[(size,)](
        logits_BV, V, rows.temperatures, peaks, sums, bests, rows.seeds, rows.counts, rows.limits, rows.stops,
        rows.active, rows.produced, out_tokens, out_logprobs, out_tokens.stride(0), rows.ids,
        rows.lengths, rows.positions, rows.slots, rows.seen, rows.table, rows.table.stride(0),
        rows.nodes, rows.tries.tokens, rows.tries.firsts, rows.tries.fans,
        CHUNKS=chunks, WIDTH=power(chunks), CHUNK=CHUNK, STOPS=rows.stops.shape[1], PAGE=PAGE, FAN=FAN,
        ADVANCE=advance, num_warps=8,
    )  # fmt: skip


class Tries(NamedTuple):
    """The tries of legal replies, as arrays over their nodes. Node n is reached by `tokens[n]`, and the tokens that may
    come after it lead to the nodes from `firsts[n]` to before `firsts[n] + fans[n]`, in the order of their ids. At the
    end of a reply `fans[n]` is 0."""

    tokens: Tensor
    firsts: Tensor
    fans: Tensor


class Rows:
    """The state of every running sequence on the GPU, one row each, or several with drafts (`drafts.py`). The host
    writes it when sequences join or leave, and `sample_and_advance` updates it after every token."""

    def __init__(self, rows: int, pages: int, stops: int, chunk: int, nodes: int, device: torch.device) -> None:
        def new(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.ids = new(rows, dtype=torch.int64)  # the next input token
        self.positions = new(rows, dtype=torch.int64)  # its position
        self.slots = new(rows, dtype=torch.int64)  # where its key and value go; 0 is scratch
        self.seen = new(rows)  # number of tokens it attends to, including itself; 0: the row is idle
        self.lengths = new(rows)  # number of tokens of the sequence so far, including it
        self.active = new(rows)
        self.produced = new(rows)  # tokens in out_* since the host last read them
        self.counts = new(rows)  # tokens sampled since the request began
        self.limits = new(rows)
        self.seeds = new(rows, dtype=torch.int64)
        self.temperatures = torch.ones(rows, dtype=torch.float32, device=device)
        self.adapters = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.stops = torch.full((rows, stops), -1, dtype=torch.int64, device=device)
        self.nodes = new(rows) - 1  # where a masked reply is in `tries`; -1: any token may be sampled
        self.tries = Tries(*(new(nodes) for _ in Tries._fields))
        self.table = new(rows, pages)
        self.out_tokens = new(rows, chunk)
        self.out_logprobs = torch.zeros((rows, chunk), dtype=torch.float32, device=device)

    _MOVING = ("ids", "positions", "slots", "seen", "lengths", "active", "produced", "counts", "nodes")

    def part(self, start: int, end: int) -> Rows:
        """Rows `start` to before `end`, as a view of the same memory."""
        out = object.__new__(Rows)
        out.__dict__ = {n: value[start:end] for n, value in self.__dict__.items() if n != "tries"}
        out.tries = self.tries
        return out

    def save(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).clone() for name in self._MOVING}

    def restore(self, saved: dict[str, Tensor]) -> None:
        for name, value in saved.items():
            getattr(self, name).copy_(value)

    def idle(self, size: int) -> None:
        """Mark the first `size` rows as unused: they read nothing and write to the scratch block."""
        for name in self._MOVING:
            getattr(self, name)[:size].fill_(-1 if name == "nodes" else 0)

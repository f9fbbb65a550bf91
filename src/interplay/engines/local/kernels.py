"""Triton kernels for CUDA: what a decoding step does between its matrix products, each in one pass over its data.

Tokens are packed: T rows, one per token, whatever sequence it belongs to. The key-value cache is paged: token t of a
sequence lives in slot `table[t // PAGE] * PAGE + t % PAGE`, a row of [G, D] in `keys` and `values`. Sums run in fp32.
Only imported where there is a GPU (or Triton's interpreter: that is how the tests check each against plain torch).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear

PAGE = 16  # tokens per cache block
CHUNK = 4096  # logits per program of the sampler
# Shapes: T tokens, B sequences, C hidden size, H query heads, G key-value heads, D head size, V vocabulary.


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length()


# -- norms, rotary positions, activations ---------------------------------------------------------------------------


@triton.jit
def _add_norm(x, stride, residual, weight, out, eps, C: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    value = tl.load(x + row * stride + c, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + row * C + c, mask=inside, other=0.0)
        tl.store(residual + row * C + c, value, mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, 0) / C + eps)
    w = tl.load(weight + c, mask=inside, other=0.0)
    tl.store(out + row * C + c, (value * scale).to(w.dtype) * w, mask=inside)


def add_norm(x_TC: Tensor, residual_TC: Tensor | None, weight_C: Tensor, eps: float) -> Tensor:
    """RMSNorm of x, or of x + residual, which is then also stored back into `residual`. The residual stream is fp32:
    rounded at every layer, two ways of computing it drift apart."""
    T, C = x_TC.shape
    out = torch.empty((T, C), dtype=weight_C.dtype, device=x_TC.device)
    block = _power(C)
    _add_norm[(T,)](
        x_TC, x_TC.stride(0), x_TC if residual_TC is None else residual_TC, weight_C, out, eps,
        C=C, BLOCK=block, ADD=residual_TC is not None, num_warps=4 if block <= 2048 else 8,
    )  # fmt: skip
    return out


def turns(cos: Tensor, sin: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """What `rope_store` is given, for all layers: here the tables themselves."""
    return cos, sin


@triton.jit
def _rope_store(
    qkv, stride, cos, sin, positions, slots, q_out, keys, values, q_norm, k_norm, eps,
    H: tl.constexpr, G: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token)
    slot = tl.load(slots + token).to(tl.int64)
    h = tl.arange(0, HEADS)[:, None]
    d = tl.arange(0, HALF)[None, :]
    D: tl.constexpr = 2 * HALF
    at = qkv + token * stride + h * D + d
    inside = (h < H + 2 * G) & (d < HALF)
    first = tl.load(at, mask=inside, other=0.0)
    a = first.to(tl.float32)
    b = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    turned = h < H + G
    if NORM:
        scale = tl.rsqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / D + eps)[:, None]
        is_query = h < H
        wa = tl.where(is_query, tl.load(q_norm + d), tl.load(k_norm + d))
        wb = tl.where(is_query, tl.load(q_norm + d + HALF), tl.load(k_norm + d + HALF))
        a = tl.where(turned, ((a * scale).to(first.dtype) * wa).to(tl.float32), a)
        b = tl.where(turned, ((b * scale).to(first.dtype) * wb).to(tl.float32), b)
    c = tl.load(cos + position * HALF + d).to(tl.float32)
    s = tl.load(sin + position * HALF + d).to(tl.float32)
    low = tl.where(turned, a * c - b * s, a).to(first.dtype)
    high = tl.where(turned, b * c + a * s, b).to(first.dtype)
    query = q_out + (token * H + h) * D + d
    tl.store(query, low, mask=h < H)
    tl.store(query + HALF, high, mask=h < H)
    key = keys + (slot * G + h - H) * D + d
    is_key = (h >= H) & (h < H + G)
    tl.store(key, low, mask=is_key)
    tl.store(key + HALF, high, mask=is_key)
    value = values + (slot * G + h - H - G) * D + d
    is_value = (h >= H + G) & (h < H + 2 * G)
    tl.store(value, low, mask=is_value)
    tl.store(value + HALF, high, mask=is_value)


def rope_store(
    qkv_TN: Tensor, cos: Tensor, sin: Tensor, positions_T: Tensor, slots_T: Tensor, keys: Tensor, values: Tensor,
    heads: int, q_norm: Tensor | None = None, k_norm: Tensor | None = None, eps: float = 0.0,
) -> Tensor:  # fmt: skip
    """Turn queries and keys by their positions (normed first where the model does), store keys and values in their
    slots; the queries [T, H, D] are returned. `cos` and `sin` are tables [positions, D / 2]."""
    T = qkv_TN.shape[0]
    _, G, D = keys.shape
    out = torch.empty((T, heads, D), dtype=qkv_TN.dtype, device=qkv_TN.device)
    _rope_store[(T,)](
        qkv_TN, qkv_TN.stride(0), cos, sin, positions_T, slots_T, out, keys, values,
        cos if q_norm is None else q_norm, cos if k_norm is None else k_norm, eps,
        H=heads, G=G, HALF=D // 2, HEADS=_power(heads + 2 * G), NORM=q_norm is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _silu_mul(x, stride, out, I: tl.constexpr, BLOCK: tl.constexpr):  # noqa: E741
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < I
    gate = tl.load(x + row * stride + i, mask=inside, other=0.0)
    up = tl.load(x + row * stride + I + i, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    tl.store(out + row * I + i, (wide * tl.sigmoid(wide)).to(gate.dtype) * up, mask=inside)


def silu_mul(gate_up_TN: Tensor, size: int) -> Tensor:
    """silu(gate) · up, of rows that hold gate and up side by side."""
    T = gate_up_TN.shape[0]
    out = torch.empty((T, size), dtype=gate_up_TN.dtype, device=gate_up_TN.device)
    block = 1024
    _silu_mul[(T, triton.cdiv(size, block))](gate_up_TN, gate_up_TN.stride(0), out, I=size, BLOCK=block, num_warps=4)
    return out


# -- attention ------------------------------------------------------------------------------------------------------


@triton.jit
def _decode(
    q, keys, values, table, table_stride, lengths, out, part_out, part_max, part_sum, scale, window,
    H: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, PAGE: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    g = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths + b)
    r = tl.arange(0, ROWS)
    d = tl.arange(0, WIDTH)
    inside = (r < GROUP)[:, None] & (d < D)[None, :]
    head = g * GROUP + r
    query = tl.load(q + (b * H + head[:, None]) * D + d[None, :], mask=inside, other=0.0)
    begin = tl.maximum(length - window, 0)
    part = tl.cdiv(tl.cdiv(length - begin, SPLITS), BLOCK) * BLOCK
    low = begin + split * part
    high = tl.minimum(length, low + part)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(low, high, BLOCK):
        t = start + tl.arange(0, BLOCK)
        there = t < high
        page = tl.load(table + b * table_stride + t // PAGE, mask=there, other=0).to(tl.int64)
        row = ((page * PAGE + t % PAGE) * G + g) * D
        fits = there[:, None] & (d < D)[None, :]
        key = tl.load(keys + row[:, None] + d[None, :], mask=fits, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * 1.4426950408889634)
        score = tl.where(there[None, :], score, float("-inf"))
        above = tl.maximum(peak, tl.max(score, 1))
        shrink = tl.exp2(peak - above)
        weight = tl.exp2(score - above[:, None])
        total = total * shrink + tl.sum(weight, 1)
        value = tl.load(values + row[:, None] + d[None, :], mask=fits, other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        peak = above
    if SPLITS == 1:
        safe = tl.where(total > 0, total, 1.0)  # a row of length 0 is padding: zeros, not NaN
        result = (mixed / safe[:, None]).to(query.dtype)
        tl.store(out + (b * H + head[:, None]) * D + d[None, :], result, mask=inside)
    else:
        spot = (b * H + head) * SPLITS + split
        tl.store(part_out + spot[:, None] * D + d[None, :], mixed, mask=inside)
        tl.store(part_max + spot, peak, mask=r < GROUP)
        tl.store(part_sum + spot, total, mask=r < GROUP)


@triton.jit
def _merge(part_out, part_max, part_sum, out, D: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, WIDTH)
    peak = tl.load(part_max + row * SPLITS + s)
    top = tl.max(peak, 0)
    weight = tl.where(peak > float("-inf"), tl.exp2(peak - tl.where(top > float("-inf"), top, 0.0)), 0.0)
    total = tl.sum(weight * tl.load(part_sum + row * SPLITS + s), 0)
    parts = tl.load(part_out + (row * SPLITS + s[:, None]) * D + d[None, :], mask=(d < D)[None, :], other=0.0)
    mixed = tl.sum(parts * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + row * D + d, mixed.to(out.dtype.element_ty), mask=d < D)


def decode_splits(batch: int, groups: int) -> int:
    """Into how many parts each context is cut, so that few sequences still fill the GPU."""
    return min(32, _power(max(1, 264 // (batch * groups))))


def decode_attention(
    q_BHD: Tensor, keys: Tensor, values: Tensor, table_BP: Tensor, lengths_B: Tensor, scale: float, window: int
) -> Tensor:
    """One query token per sequence over its cached context. A program reads each key-value head once and serves all
    query heads that share it. Rows of length 0 are padding."""
    B, H, D = q_BHD.shape
    G = keys.shape[1]
    splits = decode_splits(B, G)
    out = torch.empty_like(q_BHD)
    parts = B * H * splits if splits > 1 else 1
    part_out = torch.empty((parts, D), dtype=torch.float32, device=q_BHD.device)
    part_max, part_sum = (torch.empty(parts, dtype=torch.float32, device=q_BHD.device) for _ in range(2))
    width = max(16, _power(D))
    _decode[(B, G, splits)](
        q_BHD, keys, values, table_BP, table_BP.stride(0), lengths_B, out, part_out, part_max, part_sum, scale, window,
        H=H, G=G, GROUP=H // G, ROWS=max(16, _power(H // G)), D=D, WIDTH=width, BLOCK=64 if width <= 128 else 32,
        PAGE=PAGE, SPLITS=splits, PRECISION=_precision(q_BHD), num_warps=4, num_stages=3,
    )  # fmt: skip
    if splits > 1:
        _merge[(B * H,)](part_out, part_max, part_sum, out, D=D, WIDTH=width, SPLITS=splits, num_warps=4)
    return out


@triton.jit
def _prefill(
    q, keys, values, table, table_stride, tile_row, tile_begin, row_offset, row_start, row_count, out, scale, window,
    H: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    head = tl.program_id(1)
    b = tl.load(tile_row + tile).to(tl.int64)
    begin = tl.load(tile_begin + tile)
    start = tl.load(row_start + b)
    count = tl.load(row_count + b)
    m = begin + tl.arange(0, ROWS)
    d = tl.arange(0, WIDTH)
    inside = (m < count)[:, None] & (d < D)[None, :]
    token = (tl.load(row_offset + b) + m).to(tl.int64)
    query = tl.load(q + (token[:, None] * H + head) * D + d[None, :], mask=inside, other=0.0)
    position = start + m
    g = head // GROUP
    end = tl.minimum(start + begin + ROWS, start + count)
    low = tl.maximum(start + begin - window + 1, 0) // BLOCK * BLOCK
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(low, end, BLOCK):
        t = first + tl.arange(0, BLOCK)
        page = tl.load(table + b * table_stride + t // PAGE, mask=t < end, other=0).to(tl.int64)
        row = ((page * PAGE + t % PAGE) * G + g) * D
        fits = (t < end)[:, None] & (d < D)[None, :]
        key = tl.load(keys + row[:, None] + d[None, :], mask=fits, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * (scale * 1.4426950408889634)
        seen = (t[None, :] <= position[:, None]) & (t[None, :] > position[:, None] - window) & (t < end)[None, :]
        score = tl.where(seen, score, float("-inf"))
        above = tl.maximum(peak, tl.max(score, 1))
        anchor = tl.where(above > float("-inf"), above, 0.0)
        shrink = tl.exp2(peak - anchor)
        weight = tl.exp2(score - anchor[:, None])
        total = total * shrink + tl.sum(weight, 1)
        value = tl.load(values + row[:, None] + d[None, :], mask=fits, other=0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        peak = above
    safe = tl.where(total > 0, total, 1.0)
    tl.store(out + (token[:, None] * H + head) * D + d[None, :], (mixed / safe[:, None]).to(query.dtype), mask=inside)


PREFILL_ROWS = 64  # query tokens per program


class Tiles(NamedTuple):
    """Where packed new tokens belong. Sequence b brings `row_count[b]` tokens that stand at `row_offset[b]` of the pack
    and at position `row_start[b]` of the sequence; the tiles are PREFILL_ROWS tokens of one sequence each."""

    table_BP: Tensor
    row: Tensor  # per tile: its sequence
    begin: Tensor  # per tile: its first token, counted from the sequence's first new one
    row_offset: Tensor
    row_start: Tensor
    row_count: Tensor


def prefill_attention(q_THD: Tensor, keys: Tensor, values: Tensor, where: Tiles, scale: float, window: int) -> Tensor:
    """Causal attention of packed new tokens over their sequences' caches, which already hold their own keys."""
    _, H, D = q_THD.shape
    G = keys.shape[1]
    width = max(16, _power(D))
    out = torch.empty_like(q_THD)
    _prefill[(where.row.shape[0], H)](
        q_THD, keys, values, where.table_BP, where.table_BP.stride(0), where.row, where.begin, where.row_offset,
        where.row_start, where.row_count, out, scale, window,
        H=H, G=G, GROUP=H // G, D=D, WIDTH=width, ROWS=PREFILL_ROWS, BLOCK=64 if width <= 128 else 32, PAGE=PAGE,
        PRECISION=_precision(q_THD), num_warps=4, num_stages=3 if width <= 128 else 2,
    )  # fmt: skip
    return out


def _precision(t: Tensor) -> str:
    return "ieee" if t.dtype is torch.float32 else "tf32"


# -- adapters -------------------------------------------------------------------------------------------------------


@triton.jit
def _expand(
    y, stride, weight, owner, scales, adapters, T, second, third,
    N: tl.constexpr, R: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, RANKS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    start = tl.program_id(1) * COLUMNS
    n = start + tl.arange(0, COLUMNS)
    base_rank = ((start >= second).to(tl.int32) + (start >= third).to(tl.int32)) * R
    there = t < T
    mine = tl.load(adapters + t, mask=there, other=-1)
    row = t.to(tl.int64)[:, None] * stride
    total = tl.zeros([TOKENS, COLUMNS], tl.float32)
    for first in range(0, R, RANKS):
        r = first + tl.arange(0, RANKS)
        whose = tl.load(owner + r, mask=r < R, other=-2)
        keep = (mine[:, None] == whose[None, :]) & there[:, None]
        low = tl.load(y + row + N + base_rank + r[None, :], mask=keep, other=0.0)
        low = (low.to(tl.float32) * tl.load(scales + r, mask=r < R, other=0.0)[None, :]).to(low.dtype)
        up = tl.load(
            weight + (base_rank + r[:, None]) * N + n[None, :], mask=(r < R)[:, None] & (n < N)[None, :], other=0.0
        )
        total += tl.dot(low, up, input_precision=PRECISION)
    spot = y + row + n[None, :]
    fits = there[:, None] & (n < N)[None, :]
    base = tl.load(spot, mask=fits, other=0.0)
    tl.store(spot, (base.to(tl.float32) + total).to(base.dtype), mask=fits)


def lora_expand(
    y_TM: Tensor, weight: Tensor, owner_R: Tensor, scales_R: Tensor, adapters_T: Tensor, starts: tuple[int, ...]
) -> None:
    """Rows of `y` hold the outputs [N] of up to three layers side by side and, after them, R low-rank products for each
    of the layers; every token adds the part of its own adapter. `weight` is [layers · R, N]; `starts` are the columns
    where the layers begin. A rank whose owner is not the token's adapter counts as zero."""
    T = y_TM.shape[0]
    R, N = owner_R.shape[0], weight.shape[1]
    columns = next(c for c in (128, 64, 32, 16) if all(s % c == 0 for s in starts) or c == 16)
    tokens = 32 if T <= 512 else 64
    second, third = (*starts[1:], 1 << 30, 1 << 30)[:2]
    _expand[(triton.cdiv(T, tokens), triton.cdiv(N, columns))](
        y_TM, y_TM.stride(0), weight, owner_R, scales_R, adapters_T, T, second, third,
        N=N, R=R, TOKENS=tokens, COLUMNS=columns, RANKS=min(64, max(16, _power(R))), PRECISION=_precision(y_TM),
        num_warps=4,
    )  # fmt: skip


# -- sampling -------------------------------------------------------------------------------------------------------


def logits(hidden_TC: Tensor, weight_VC: Tensor) -> Tensor:
    """In fp32: in bf16 a logit of 20 is known to ±0.06 only, and two ways of computing it would differ by as much."""
    if hidden_TC.is_cuda and hidden_TC.dtype is not torch.float32:
        return torch.mm(hidden_TC, weight_VC.t(), out_dtype=torch.float32)
    return linear(hidden_TC, weight_VC)


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
def _pick(
    logits, V, temperatures, peaks, sums, bests, seeds, counts, limits, stops, active, produced,
    out_tokens, out_logprobs, out_stride, ids, lengths, positions, slots, seen, table, table_stride,
    CHUNKS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, STOPS: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    heat = tl.load(temperatures + b)
    count = tl.load(counts + b)
    # One uniform per (seed, position): splitmix64, as in sampler.uniforms.
    z = tl.load(seeds + b).to(tl.uint64) + (count + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    z = z ^ (z >> 31)
    draw = (z >> 11).to(tl.float64) * (1.0 / 9007199254740992.0)
    # Which chunk, by the chunks' weights; then which entry in it.
    c = tl.arange(0, WIDTH)
    peak = tl.load(peaks + b * CHUNKS + c, mask=c < CHUNKS, other=float("-inf"))
    top = tl.max(peak, 0)
    weight = tl.load(sums + b * CHUNKS + c, mask=c < CHUNKS, other=0.0) * tl.exp(peak - top)
    heavy = weight.to(tl.float64)
    running = tl.cumsum(heavy, 0)
    total = tl.sum(heavy, 0)
    target = draw * total
    chunk = tl.sum((running <= target).to(tl.int32), 0)
    chunk = tl.minimum(chunk, tl.max(tl.where(weight > 0, c, 0), 0))
    before = tl.sum(tl.where(c < chunk, heavy, 0.0), 0)
    i = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + b * V + i, mask=i < V, other=float("-inf")).to(tl.float32)
    x = x / tl.where(heat == 0, 1.0, heat)
    mass = tl.exp(x - top)
    inner = tl.cumsum(mass, 0)
    rest = (target - before).to(tl.float32)
    place = tl.sum((inner <= rest).to(tl.int32), 0)
    place = tl.minimum(place, tl.max(tl.where(mass > 0, tl.arange(0, CHUNK), 0), 0))
    chosen = chunk * CHUNK + place
    logit = tl.sum(tl.where(i == chosen, x, 0.0), 0)
    logprob = logit - top - tl.log(total.to(tl.float32))
    best = tl.min(tl.where(peak == top, tl.load(bests + b * CHUNKS + c, mask=c < CHUNKS, other=V), V), 0)
    greedy = heat == 0
    token = tl.where(greedy, best, chosen).to(tl.int64)
    logprob = tl.where(greedy, 0.0, logprob)
    # The sequence moves on, unless it was over already.
    alive = tl.load(active + b) != 0
    made = tl.load(produced + b)
    tl.store(out_tokens + b * out_stride + made, token.to(tl.int32), mask=alive)
    tl.store(out_logprobs + b * out_stride + made, logprob, mask=alive)
    tl.store(produced + b, made + 1, mask=alive)
    tl.store(counts + b, count + 1, mask=alive)
    s = tl.arange(0, STOPS)
    ended = tl.sum((tl.load(stops + b * STOPS + s) == token).to(tl.int32), 0) > 0
    going = alive & (~ended) & (count + 1 < tl.load(limits + b))
    tl.store(active + b, going.to(tl.int32))
    length = tl.load(lengths + b)
    tl.store(ids + b, token, mask=going)
    tl.store(lengths + b, length + 1, mask=going)
    tl.store(positions + b, length.to(tl.int64), mask=going)
    page = tl.load(table + b * table_stride + length // PAGE, mask=going, other=0)
    tl.store(slots + b, tl.where(going, page * PAGE + length % PAGE, 0).to(tl.int64))
    tl.store(seen + b, tl.where(going, length + 1, 0))


def sample_and_advance(logits_BV: Tensor, rows: Rows, size: int) -> None:
    """Draw a token for each of the first `size` rows and move their state on: one pass over the logits for the
    log-sum-exp of every chunk, then the drawn chunk alone. The draw is the inverse of the distribution at one uniform
    per (seed, position), as on a CPU."""
    V = logits_BV.shape[1]
    chunks = triton.cdiv(V, CHUNK)
    peaks = torch.empty((size, chunks), dtype=torch.float32, device=logits_BV.device)
    sums = torch.empty_like(peaks)
    bests = torch.empty_like(peaks, dtype=torch.int32)
    _stats[(size, chunks)](logits_BV, V, rows.temperatures, peaks, sums, bests, CHUNKS=chunks, CHUNK=CHUNK, num_warps=8)
    _pick[(size,)](
        logits_BV, V, rows.temperatures, peaks, sums, bests, rows.seeds, rows.counts, rows.limits, rows.stops,
        rows.active, rows.produced, rows.out_tokens, rows.out_logprobs, rows.out_tokens.stride(0), rows.ids,
        rows.lengths, rows.positions, rows.slots, rows.seen, rows.table, rows.table.stride(0),
        CHUNKS=chunks, WIDTH=_power(chunks), CHUNK=CHUNK, STOPS=rows.stops.shape[1], PAGE=PAGE, num_warps=8,
    )  # fmt: skip


class Rows:
    """The state of every running sequence, on the GPU, a row each. Written by the host when rows change hands, and by
    `sample_and_advance` after every token."""

    def __init__(self, rows: int, pages: int, stops: int, chunk: int, device: torch.device) -> None:
        def new(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.ids = new(rows, dtype=torch.int64)  # the token to be fed
        self.positions = new(rows, dtype=torch.int64)  # where it stands
        self.slots = new(rows, dtype=torch.int64)  # where its key and value go; 0 is scratch
        self.seen = new(rows)  # tokens it attends to, itself included; 0: the row is idle
        self.lengths = new(rows)  # tokens of the sequence so far, itself included
        self.active = new(rows)
        self.produced = new(rows)  # tokens in out_* since the host last looked
        self.counts = new(rows)  # tokens sampled since the request began
        self.limits = new(rows)
        self.seeds = new(rows, dtype=torch.int64)
        self.temperatures = torch.ones(rows, dtype=torch.float32, device=device)
        self.adapters = torch.full((rows,), -1, dtype=torch.int32, device=device)
        self.stops = torch.full((rows, stops), -1, dtype=torch.int64, device=device)
        self.table = new(rows, pages)
        self.out_tokens = new(rows, chunk)
        self.out_logprobs = torch.zeros((rows, chunk), dtype=torch.float32, device=device)

    _MOVING = ("ids", "positions", "slots", "seen", "lengths", "active", "produced", "counts")

    def part(self, start: int, end: int) -> Rows:
        """Rows start..end as rows of their own: the same memory."""
        out = object.__new__(Rows)
        out.__dict__ = {name: value[start:end] for name, value in self.__dict__.items()}
        return out

    def save(self) -> dict[str, Tensor]:
        return {name: getattr(self, name).clone() for name in self._MOVING}

    def restore(self, saved: dict[str, Tensor]) -> None:
        for name, value in saved.items():
            getattr(self, name).copy_(value)

    def idle(self, size: int) -> None:
        """Nobody sits in the first rows: they read nothing and write to scratch."""
        for name in self._MOVING:
            getattr(self, name)[:size].zero_()

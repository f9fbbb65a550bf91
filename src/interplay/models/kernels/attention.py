"""Attention over the paged cache: for one new token per sequence (decode), and for many (prefill)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from interplay.models.kernels.launch import PAGE, early, power, precision
from interplay.models.rotary import Decoding, Rotary

PREFILL_ROWS = 64  # query tokens per program


@triton.jit
def _normed(x, partner, weight, spots, spots_of_partner, size, eps, NORM: tl.constexpr):
    """Heads [ROWS, D] after their RMSNorm, if there is one, and their partners in the rotation, both in fp32."""
    a, b = x.to(tl.float32), partner.to(tl.float32)
    if NORM:
        scale = tl.rsqrt(tl.sum(a * a, 1) / size + eps)[:, None]
        a = ((a * scale).to(x.dtype) * tl.load(weight + spots)[None, :]).to(tl.float32)
        b = ((b * scale).to(x.dtype) * tl.load(weight + spots_of_partner)[None, :]).to(tl.float32)
    return a, b


@triton.jit
def _decode(
    q, stride, keys, values, table, table_stride, lengths, out, part_out, part_max, part_sum, scale, window,
    cos, sin, positions, slots, q_norm, k_norm, eps,
    H: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, PAGE: tl.constexpr, SPLITS: tl.constexpr, PRECISION: tl.constexpr,
    NEW: tl.constexpr, NORM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """With NEW, rows of `q` also have the new token's key and value, and nothing is rotated yet. The new token is not
    read from the cache: the sums begin with it, in the first part."""
    b = tl.program_id(0).to(tl.int64)
    g = tl.program_id(1)
    split = tl.program_id(2)
    r = tl.arange(0, ROWS)
    d = tl.arange(0, WIDTH)
    inside = (r < GROUP)[:, None] & (d < D)[None, :]
    head = g * GROUP + r
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    length = tl.load(lengths + b)
    begin = tl.maximum(length - window, 0)
    at = q + b * stride + head[:, None] * D
    query = tl.load(at + d[None, :], mask=inside, other=0.0)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDTH], tl.float32)
    known = length
    if NEW:
        known = length - 1
        HALF: tl.constexpr = D // 2
        other = (d + HALF) % D
        angle = tl.load(positions + b) * HALF + d % HALF
        turn = tl.load(cos + angle).to(tl.float32)[None, :]
        cross = tl.load(sin + angle).to(tl.float32)
        cross = tl.where(d < HALF, -cross, cross)[None, :]
        a, c = _normed(query, tl.load(at + other[None, :], mask=inside, other=0.0), q_norm, d, other, D, eps, NORM)
        query = (a * turn + c * cross).to(query.dtype)
        at = q + b * stride + (H + g) * D
        a, c = _normed(tl.load(at + d)[None, :], tl.load(at + other)[None, :], k_norm, d, other, D, eps, NORM)
        new_key = (a * turn + c * cross).to(query.dtype)
        new_value = tl.load(at + G * D + d)[None, :]
        if split == 0:
            spot = (tl.load(slots + b).to(tl.int64) * G + g) * D + d[None, :]
            tl.store(keys + spot, new_key)
            tl.store(values + spot, new_value)
            peak = tl.sum(query.to(tl.float32) * new_key.to(tl.float32), 1) * (scale * 1.4426950408889634)
            total += 1.0
            mixed += new_value.to(tl.float32)
    part = tl.cdiv(tl.cdiv(known - begin, SPLITS), BLOCK) * BLOCK
    low = begin + split * part
    high = tl.minimum(known, low + part)
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
        safe = tl.where(total > 0, total, 1.0)  # a row of length 0 is padding: it gets numbers, not NaN
        result = (mixed / safe[:, None]).to(query.dtype)
        tl.store(out + (b * H + head[:, None]) * D + d[None, :], result, mask=inside)
    else:
        spot = (b * H + head) * SPLITS + split
        tl.store(part_out + spot[:, None] * D + d[None, :], mixed, mask=inside)
        tl.store(part_max + spot, peak, mask=r < GROUP)
        tl.store(part_sum + spot, total, mask=r < GROUP)


@triton.jit
def _merge(
    part_out, part_max, part_sum, out,
    D: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, WIDTH)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    peak = tl.load(part_max + row * SPLITS + s)
    top = tl.max(peak, 0)
    weight = tl.where(peak > float("-inf"), tl.exp2(peak - tl.where(top > float("-inf"), top, 0.0)), 0.0)
    total = tl.sum(weight * tl.load(part_sum + row * SPLITS + s), 0)
    parts = tl.load(part_out + (row * SPLITS + s[:, None]) * D + d[None, :], mask=(d < D)[None, :], other=0.0)
    mixed = tl.sum(parts * weight[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + row * D + d, mixed.to(out.dtype.element_ty), mask=d < D)


def decode_splits(batch: int, groups: int) -> int:
    """The number of parts into which each context is split, so that few sequences still use the whole GPU."""
    return min(32, power(max(1, 264 // (batch * groups))))


def decode_attention(q_BHD: Tensor, keys: Tensor, values: Tensor, where: Decoding, scale: float, window: int) -> Tensor:
    """Attention of one query token per row over its cached context, which has the new token."""
    return _attend(q_BHD, keys, values, where, scale, window, None)


def decode_new(
    qkv_BN: Tensor, keys: Tensor, values: Tensor, where: Decoding, scale: float, window: int, new: Rotary
) -> Tensor:
    """What `rope_store` and `decode_attention` do together, for rows that do not attend to each other's new tokens."""
    return _attend(qkv_BN, keys, values, where, scale, window, new)


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, where: Decoding, scale: float, window: int, new: Rotary | None
) -> Tensor:
    """A program reads a key-value head once for all query heads that share it."""
    _, G, D = keys.shape
    B, H = q.shape[0], q.shape[1] if new is None else new.heads
    splits = decode_splits(B, G)
    out = torch.empty((B, H, D), dtype=q.dtype, device=q.device)
    parts = B * H * splits if splits > 1 else 1
    part_out = torch.empty((parts, D), dtype=torch.float32, device=q.device)
    part_max, part_sum = (torch.empty(parts, dtype=torch.float32, device=q.device) for _ in range(2))
    width = max(16, power(D))
    # The fastest settings of those that were tried on an H200, in bf16 with 384 cached tokens.
    many = width > 64 or B * G * splits >= 1024 or q.dtype is torch.float32
    block = (64 if many else 128) if width <= 128 else 32
    options = early(q)
    none = where.lengths_B  # in the place of what is not used
    cos, sin, positions, slots = (none, none, none, none) if new is None else new[:4]
    norms = (none, none) if new is None or new.q_norm is None else (new.q_norm, new.k_norm)
    _decode[(B, G, splits)](
        q, q.stride(0), keys, values, where.table_BP, where.table_BP.stride(0), where.lengths_B, out, part_out,
        part_max, part_sum, scale, window, cos, sin, positions, slots, *norms, 0.0 if new is None else new.eps,
        H=H, G=G, GROUP=H // G, ROWS=max(16, power(H // G)), D=D, WIDTH=width, BLOCK=block, PAGE=PAGE, SPLITS=splits,
        PRECISION=precision(q), NEW=new is not None, NORM=new is not None and new.q_norm is not None,
        num_warps=2 if many and width <= 128 else 4, num_stages=3, **options,
    )  # fmt: skip
    if splits > 1:
        _merge[(B * H,)](
            part_out, part_max, part_sum, out, D=D, WIDTH=width, SPLITS=splits, num_warps=4, **options
        )  # fmt: skip
    return out


@triton.jit
def _prefill(
    q, keys, values, table, tile_row, tile_begin, row_table, row_offset, row_start, row_count, out, scale, window,
    H: tl.constexpr, G: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, PAGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    head = tl.program_id(1)
    b = tl.load(tile_row + tile).to(tl.int64)
    if b < 0:
        return
    begin = tl.load(tile_begin + tile)
    pages = table + tl.load(row_table + b)
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
        page = tl.load(pages + t // PAGE, mask=t < end, other=0).to(tl.int64)
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


class Tiles(NamedTuple):
    """Where packed new tokens belong. Sequence b has `row_count[b]` new tokens, which begin at `row_offset[b]` of the
    pack and at position `row_start[b]` of the sequence. Its blocks begin at `row_table[b]` of the table. A tile is at
    most PREFILL_ROWS tokens of one sequence."""

    table: Tensor  # the blocks of all sequences, one after another
    row: Tensor  # per tile: its sequence; -1: the tile is idle
    begin: Tensor  # per tile: its first token, counted from the sequence's first new one
    row_table: Tensor
    row_offset: Tensor
    row_start: Tensor
    row_count: Tensor


def prefill_attention(q_THD: Tensor, keys: Tensor, values: Tensor, where: Tiles, scale: float, window: int) -> Tensor:
    """Causal attention of packed new tokens over their sequences' caches, which already hold the new tokens' keys."""
    _, H, D = q_THD.shape
    G = keys.shape[1]
    width = max(16, power(D))
    out = torch.empty_like(q_THD)
    _prefill[(where.row.shape[0], H)](
        q_THD, keys, values, *where, out, scale, window,
        H=H, G=G, GROUP=H // G, D=D, WIDTH=width, ROWS=PREFILL_ROWS, BLOCK=64 if width <= 128 else 32, PAGE=PAGE,
        PRECISION=precision(q_THD), num_warps=4, num_stages=3 if width <= 128 else 2,
    )  # fmt: skip
    return out

"""Layers with LoRA, for a batch in which each token has its own adapter.

The base's part of an output and the adapter's part are added in fp32 and rounded once. An update of an adapter often
changes an output by less than half a step of bf16. Such a change would be lost if the base's part were rounded first,
as PEFT does it. With SmolLM2-135M and that rounding, only 16% of the first update's effect on the log-probs remained,
and 54% after five updates (`benchmarks/rounding.py`).
"""

from __future__ import annotations

from typing import Protocol

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from interplay.models.kernels.launch import FEW, early, power, precision
from interplay.models.kernels.products import wide_parts

# Tokens, columns and warps of a program, for few tokens and for many. The fastest of those that were tried on an H200.
FEW_TILE, MANY_TILE = (16, 128, 4), (64, 128, 8)


class JoinedLayers(Protocol):
    """Layers side by side that read the same input. In `storage`, R down rows for each layer come after the `rows` rows
    of the layers themselves. `up` is [layers · R, rows], and `starts` are the columns where the layers begin."""

    storage: Tensor
    rows: int
    bias: Tensor | None
    starts: tuple[int, ...]
    up: Tensor | None


class RankOwners(Protocol):
    """For each of the R ranks, the index of its adapter and that adapter's scale."""

    owner: Tensor
    scales: Tensor


@triton.jit
def _ranks(first, origin, owner, scales, weight, n, N, R: tl.constexpr, RANKS: tl.constexpr):
    """The owners and the scales of ranks, and their rows of the second matrix, from row `origin`."""
    r = first + tl.arange(0, RANKS)
    whose = tl.load(owner + r, mask=r < R, other=-2)
    weigh = tl.load(scales + r, mask=r < R, other=0.0)
    fits = (r < R)[:, None] & (n < N)[None, :]
    return whose, weigh, tl.load(weight + (origin + r[:, None]) * N + n[None, :], mask=fits, other=0.0)


@triton.jit
def _added(
    total, y, row, jump, first, origin, whose, weigh, up, mine, there, N,
    RANKS: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`total` and the part of each token's own adapter, for the ranks from `first`."""
    r = first + tl.arange(0, RANKS)
    keep = (mine[:, None] == whose[None, :]) & there[:, None]
    at = y + row + N + origin + r[None, :]
    low = tl.load(at, mask=keep, other=0.0)
    for part in tl.static_range(1, PARTS):
        low += tl.load(at + part * jump, mask=keep, other=0.0)
    return tl.dot((low * weigh[None, :]).to(up.dtype), up, total, input_precision=PRECISION)


@triton.jit
def _base(y, row, jump, bias, n, there, N, PARTS: tl.constexpr, BIAS: tl.constexpr):
    """The base's part of the outputs, with its bias, in fp32."""
    fits = there[:, None] & (n < N)[None, :]
    total = tl.load(y + row + n[None, :], mask=fits, other=0.0)
    for part in tl.static_range(1, PARTS):
        total += tl.load(y + part * jump + row + n[None, :], mask=fits, other=0.0)
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    return total


@triton.jit(do_not_specialize=["T"])  # it would be compiled again for some numbers of rows
def _expand(
    y, stride, jump, out, weight, bias, owner, scales, adapters, T, second, third,
    N: tl.constexpr, R: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, RANKS: tl.constexpr,
    PARTS: tl.constexpr, PRECISION: tl.constexpr, BIAS: tl.constexpr, GATED: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    start = tl.program_id(1) * COLUMNS
    n = start + tl.arange(0, COLUMNS)
    there = t < T
    row = t.to(tl.int64)[:, None] * stride
    half: tl.constexpr = N // 2
    part = 0  # the first row of `weight` for these columns
    if not GATED:
        part = ((start >= second).to(tl.int32) + (start >= third).to(tl.int32)) * R
    # The kernel before this one writes y and nothing else that is read here.
    mine = tl.load(adapters + t, mask=there, other=-1)
    whose, weigh, up = _ranks(0, part, owner, scales, weight, n, N, R, RANKS)
    if GATED:
        _, _, up_2 = _ranks(0, R, owner, scales, weight, n + half, N, R, RANKS)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    total = _base(y, row, jump, bias, n, there, N, PARTS, BIAS)
    total = _added(total, y, row, jump, 0, part, whose, weigh, up, mine, there, N, RANKS, PARTS, PRECISION)
    if GATED:
        total_2 = _base(y, row, jump, bias, n + half, there, N, PARTS, BIAS)
        total_2 = _added(total_2, y, row, jump, 0, R, whose, weigh, up_2, mine, there, N, RANKS, PARTS, PRECISION)
    for first in range(RANKS, R, RANKS):
        whose, weigh, up = _ranks(first, part, owner, scales, weight, n, N, R, RANKS)
        total = _added(total, y, row, jump, first, part, whose, weigh, up, mine, there, N, RANKS, PARTS, PRECISION)
        if GATED:
            _, _, up_2 = _ranks(first, R, owner, scales, weight, n + half, N, R, RANKS)
            total_2 = _added(
                total_2, y, row, jump, first, R, whose, weigh, up_2, mine, there, N, RANKS, PARTS, PRECISION
            )
    if GATED:
        gate = total.to(out.dtype.element_ty)
        wide = gate.to(tl.float32)
        value = (wide * tl.sigmoid(wide)).to(gate.dtype) * total_2.to(out.dtype.element_ty)
        tl.store(out + t.to(tl.int64)[:, None] * half + n[None, :], value, mask=there[:, None] & (n < half)[None, :])
    else:
        spot = out + t.to(tl.int64)[:, None] * N + n[None, :]
        tl.store(spot, total.to(out.dtype.element_ty), mask=there[:, None] & (n < N)[None, :])


def adapted(x_TK: Tensor, block: JoinedLayers, bank: RankOwners, adapters_T: Tensor, gated: bool = False) -> Tensor:
    """The outputs [T, N] of joined layers with the part of each token's own adapter, rounded once. A rank whose owner
    is not the token's adapter counts as zero. With `gated`, the layers are gate and up, and the result is silu(gate) ·
    up, as `silu_mul` computes it from rounded outputs, which are not stored in between."""
    weight = block.up
    assert weight is not None
    y_STM = wide_parts(x_TK, block.storage, block.rows)  # M is N + layers · R
    (S, T, _), R, N = y_STM.shape, bank.owner.shape[0], weight.shape[1]
    size = N // 2 if gated else N
    out = weight.new_empty((T, size))
    second, third = (*block.starts[1:], 1 << 30, 1 << 30)[:2]
    tokens, most, warps = FEW_TILE if T <= FEW else MANY_TILE
    columns = next(c for c in (most, 64, 32, 16) if all(s % c == 0 for s in block.starts) or c == 16)
    _expand[(triton.cdiv(T, tokens), triton.cdiv(size, columns))](
        y_STM, y_STM.stride(1), y_STM.stride(0), out, weight, weight if block.bias is None else block.bias,
        bank.owner, bank.scales, adapters_T, T, second, third,
        N=N, R=R, TOKENS=tokens, COLUMNS=columns, RANKS=min(64, max(16, power(R))), PARTS=S,
        PRECISION=precision(weight), BIAS=block.bias is not None, GATED=gated, num_warps=warps, **early(x_TK),
    )  # fmt: skip
    return out

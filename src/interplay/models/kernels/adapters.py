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

from interplay.models.kernels.launch import power, precision
from interplay.models.kernels.products import wide_product


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
def _sum(
    y, row, weight, bias, owner, scales, mine, there, n, base_rank,
    N: tl.constexpr, R: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, RANKS: tl.constexpr,
    PRECISION: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """The columns `n` of the outputs in fp32: the base's part, its bias, and the part of each token's own adapter."""
    total = tl.zeros([TOKENS, COLUMNS], tl.float32)
    for first in range(0, R, RANKS):
        r = first + tl.arange(0, RANKS)
        whose = tl.load(owner + r, mask=r < R, other=-2)
        keep = (mine[:, None] == whose[None, :]) & there[:, None]
        low = tl.load(y + row + N + base_rank + r[None, :], mask=keep, other=0.0)
        low = low * tl.load(scales + r, mask=r < R, other=0.0)[None, :]
        up = tl.load(
            weight + (base_rank + r[:, None]) * N + n[None, :], mask=(r < R)[:, None] & (n < N)[None, :], other=0.0
        )
        total += tl.dot(low.to(up.dtype), up, input_precision=PRECISION)
    base = tl.load(y + row + n[None, :], mask=there[:, None] & (n < N)[None, :], other=0.0)
    if BIAS:
        base += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    return total + base


@triton.jit
def _expand(
    y, stride, out, weight, bias, owner, scales, adapters, T, second, third,
    N: tl.constexpr, R: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, RANKS: tl.constexpr,
    PRECISION: tl.constexpr, BIAS: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    start = tl.program_id(1) * COLUMNS
    n = start + tl.arange(0, COLUMNS)
    there = t < T
    mine = tl.load(adapters + t, mask=there, other=-1)
    row = t.to(tl.int64)[:, None] * stride
    if GATED:
        half: tl.constexpr = N // 2
        gate = _sum(
            y, row, weight, bias, owner, scales, mine, there, n, 0,
            N, R, TOKENS, COLUMNS, RANKS, PRECISION, BIAS,
        ).to(out.dtype.element_ty)  # fmt: skip
        up = _sum(
            y, row, weight, bias, owner, scales, mine, there, n + half, R,
            N, R, TOKENS, COLUMNS, RANKS, PRECISION, BIAS,
        ).to(out.dtype.element_ty)  # fmt: skip
        wide = gate.to(tl.float32)
        value = (wide * tl.sigmoid(wide)).to(gate.dtype) * up
        spot = out + t.to(tl.int64)[:, None] * half + n[None, :]
        tl.store(spot, value, mask=there[:, None] & (n < half)[None, :])
    else:
        base_rank = ((start >= second).to(tl.int32) + (start >= third).to(tl.int32)) * R
        total = _sum(
            y, row, weight, bias, owner, scales, mine, there, n, base_rank,
            N, R, TOKENS, COLUMNS, RANKS, PRECISION, BIAS,
        )  # fmt: skip
        spot = out + t.to(tl.int64)[:, None] * N + n[None, :]
        tl.store(spot, total.to(out.dtype.element_ty), mask=there[:, None] & (n < N)[None, :])


def adapted(x_TK: Tensor, block: JoinedLayers, bank: RankOwners, adapters_T: Tensor, gated: bool = False) -> Tensor:
    """The outputs [T, N] of joined layers with the part of each token's own adapter, rounded once. A rank whose owner
    is not the token's adapter counts as zero. With `gated`, the layers are gate and up, and the result is silu(gate) ·
    up, as `silu_mul` computes it from rounded outputs, which are not stored in between."""
    weight = block.up
    assert weight is not None
    y_TM = wide_product(x_TK, block.storage)  # [T, N + layers · R]
    T, R, N = y_TM.shape[0], bank.owner.shape[0], weight.shape[1]
    size = N // 2 if gated else N
    out = weight.new_empty((T, size))
    columns = next(c for c in (128, 64, 32, 16) if all(s % c == 0 for s in block.starts) or c == 16)
    tokens = 32 if T <= 512 or gated else 64
    second, third = (*block.starts[1:], 1 << 30, 1 << 30)[:2]
    _expand[(triton.cdiv(T, tokens), triton.cdiv(size, columns))](
        y_TM, y_TM.stride(0), out, weight, weight if block.bias is None else block.bias, bank.owner, bank.scales,
        adapters_T, T, second, third,
        N=N, R=R, TOKENS=tokens, COLUMNS=columns, RANKS=min(64, max(16, power(R))), PRECISION=precision(weight),
        BIAS=block.bias is not None, GATED=gated, num_warps=4,
    )  # fmt: skip
    return out

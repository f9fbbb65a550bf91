"""The second matrix product of LoRA, for a batch in which each token has its own adapter."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from interplay.models.kernels.launch import power, precision


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
    """Add the part of each token's own adapter to its outputs. A row of `y` holds the outputs [N] of up to three layers
    side by side and, after them, R low-rank products for each of these layers. `weight` is [layers · R, N]; `starts`
    are the columns where the layers begin. A rank whose owner is not the token's adapter counts as zero."""
    T = y_TM.shape[0]
    R, N = owner_R.shape[0], weight.shape[1]
    columns = next(c for c in (128, 64, 32, 16) if all(s % c == 0 for s in starts) or c == 16)
    tokens = 32 if T <= 512 else 64
    second, third = (*starts[1:], 1 << 30, 1 << 30)[:2]
    _expand[(triton.cdiv(T, tokens), triton.cdiv(N, columns))](
        y_TM, y_TM.stride(0), weight, owner_R, scales_R, adapters_T, T, second, third,
        N=N, R=R, TOKENS=tokens, COLUMNS=columns, RANKS=min(64, max(16, power(R))), PRECISION=precision(y_TM),
        num_warps=4,
    )  # fmt: skip

"""The second matrix product of LoRA, for a batch in which each token has its own adapter.

The base's part of an output and the adapter's part are added in fp32 and rounded once. An update of an adapter often
changes an output by less than half a step of bf16. Such a change would be lost if the base's part were rounded first,
as PEFT does it. With SmolLM2-135M, 16% of the first update's effect on the log-probs were left then, and 54% after
five updates (`benchmarks/rounding.py`).
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from interplay.models.kernels.launch import power, precision


@triton.jit
def _expand(
    y, stride, out, weight, owner, scales, adapters, T, second, third,
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
        low = low * tl.load(scales + r, mask=r < R, other=0.0)[None, :]
        up = tl.load(
            weight + (base_rank + r[:, None]) * N + n[None, :], mask=(r < R)[:, None] & (n < N)[None, :], other=0.0
        )
        total += tl.dot(low.to(up.dtype), up, input_precision=PRECISION)
    fits = there[:, None] & (n < N)[None, :]
    total += tl.load(y + row + n[None, :], mask=fits, other=0.0)
    tl.store(out + t.to(tl.int64)[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=fits)


def lora_expand(
    y_TM: Tensor, weight: Tensor, owner_R: Tensor, scales_R: Tensor, adapters_T: Tensor, starts: tuple[int, ...]
) -> Tensor:
    """The outputs [T, N] with the part of each token's own adapter, in the precision of `weight`. A row of `y`, from
    `wide_product`, holds the outputs [N] of up to three layers side by side and, after them, R low-rank products for
    each of these layers. `weight` is [layers · R, N]; `starts` are the columns where the layers begin. A rank whose
    owner is not the token's adapter counts as zero."""
    T = y_TM.shape[0]
    R, N = owner_R.shape[0], weight.shape[1]
    out = weight.new_empty((T, N))
    columns = next(c for c in (128, 64, 32, 16) if all(s % c == 0 for s in starts) or c == 16)
    tokens = 32 if T <= 512 else 64
    second, third = (*starts[1:], 1 << 30, 1 << 30)[:2]
    _expand[(triton.cdiv(T, tokens), triton.cdiv(N, columns))](
        y_TM, y_TM.stride(0), out, weight, owner_R, scales_R, adapters_T, T, second, third,
        N=N, R=R, TOKENS=tokens, COLUMNS=columns, RANKS=min(64, max(16, power(R))), PRECISION=precision(weight),
        num_warps=4,
    )  # fmt: skip
    return out

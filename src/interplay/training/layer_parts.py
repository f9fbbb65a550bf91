"""Parts of a layer between its matrix products, with their own backward passes, for the learner on a GPU.

Each function returns its result and its backward pass: a function from the gradient of the result to those of the
inputs. The engine's kernels for the same parts are in models/kernels/layers.py; both round at the same places.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from interplay.models import kernels
from interplay.models.rotary import Rotary
from interplay.training.gradients import add_vectors

# Shapes: T tokens, C hidden size, H query heads, G key-value heads, D head size.

Grads = list[Tensor | None]  # of trained tensors; None: added up where the optimiser reads them, or not wanted
PROGRAMS = 528  # of a kernel that adds over all tokens: four for each multiprocessor of an H100


# -- norm -----------------------------------------------------------------------------------------------------------


@triton.jit
def _norm_forward(
    x, residual, weight, out, stride, total, scales, eps, C: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    value = tl.load(x + row * C + c, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + row * C + c, mask=inside, other=0.0)
    tl.store(total + row * C + c, value, mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, 0) / C + eps)
    tl.store(scales + row, scale)
    w = tl.load(weight + c, mask=inside, other=0.0)
    tl.store(out + row * stride + c, (value * scale).to(w.dtype) * w, mask=inside)


@triton.jit
def _norm_backward(
    grad, grad_total, total, scales, weight, to_x, to_residual, partial, T, PROGRAMS,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    inside = c < C
    w = tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for row in range(first, T, PROGRAMS):
        at = tl.cast(row, tl.int64) * C + c
        g = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        r = tl.load(scales + row)
        unit = tl.load(total + at, mask=inside, other=0.0) * r
        sums += g * unit
        g = g * w
        d = r * (g - unit * (tl.sum(g * unit, 0) / C)) + tl.load(grad_total + at, mask=inside, other=0.0)
        tl.store(to_residual + at, d, mask=inside)
        tl.store(to_x + at, d.to(to_x.dtype.element_ty), mask=inside)
    tl.store(partial + first * C + c, sums, mask=inside)


NormBack = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]


def add_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, room: int = 0
) -> tuple[Tensor, Tensor, NormBack]:
    """RMSNorm of x + residual. Returns the norm, the sum, which is fp32 like the residual, and the backward pass.
    Without a residual, the sum is x. The norm has `room` more columns, which are not written."""
    x = x.contiguous()
    T, C = x.shape
    kind, added = x.dtype, residual is not None
    out = torch.empty((T, C + room), dtype=weight.dtype, device=x.device)
    total = torch.empty((T, C), dtype=torch.float32, device=x.device)
    scales = torch.empty(T, dtype=torch.float32, device=x.device)
    block = 1 << (C - 1).bit_length()
    warps = 4 if block <= 2048 else 8
    _norm_forward[(T,)](
        x, x if residual is None else residual, weight, out, C + room, total, scales, eps,
        C=C, BLOCK=block, ADD=added, num_warps=warps,
    )  # fmt: skip
    kept = total.detach()  # not the tensor itself, which may be a result of an autograd function that keeps this one

    def back(grad: Tensor, grad_total: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        to_x, to_residual = torch.empty_like(kept, dtype=kind), torch.empty_like(kept)
        programs = min(T, PROGRAMS)
        partial = torch.empty((programs, C), dtype=torch.float32, device=kept.device)
        _norm_backward[(programs,)](
            grad.contiguous(), grad_total.contiguous(), kept, scales, weight, to_x, to_residual, partial, T, programs,
            C=C, BLOCK=block, num_warps=warps,
        )  # fmt: skip
        return to_x, to_residual, add_vectors([weight], partial.sum(0))[0] if weight.requires_grad else None

    return out, total, back


# -- rotary positions -----------------------------------------------------------------------------------------------


Heads = tuple[Tensor, Tensor, Tensor]
HeadsBack = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Grads]]


@triton.jit
def _turn_back(
    dq, dk, dv, cos, sin, positions, qkv, q_norm, k_norm, eps, out, partial, T, PROGRAMS,
    H: tl.constexpr, G: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Gradients of rows of q, k and v. With NORM, queries and keys had norms before the rotation; `partial` gets the
    gradients of their weights, [PROGRAMS, 2, D]."""
    first = tl.program_id(0)
    h = tl.arange(0, HEADS)[:, None]
    d = tl.arange(0, HALF)[None, :]
    D: tl.constexpr = 2 * HALF
    is_query, is_key, is_value = h < H, (h >= H) & (h < H + G), (h >= H + G) & (h < H + 2 * G)
    inside = (h < H + 2 * G) & (d < HALF)
    if NORM:
        flat = tl.arange(0, HALF)
        w_low = tl.where(is_query, tl.load(q_norm + flat)[None, :], tl.load(k_norm + flat)[None, :]).to(tl.float32)
        w_high = tl.where(is_query, tl.load(q_norm + HALF + flat)[None, :], tl.load(k_norm + HALF + flat)[None, :]).to(
            tl.float32
        )
        q_low = tl.zeros([HALF], tl.float32)
        q_high = tl.zeros([HALF], tl.float32)
        k_low = tl.zeros([HALF], tl.float32)
        k_high = tl.zeros([HALF], tl.float32)
    for number in range(first, T, PROGRAMS):
        token = tl.cast(number, tl.int64)
        position = tl.load(positions + token)
        query, key = dq + (token * H + h) * D + d, dk + (token * G + h - H) * D + d
        value = dv + (token * G + h - H - G) * D + d
        low = tl.load(query, mask=is_query & (d < HALF), other=0.0).to(tl.float32) + tl.load(
            key, mask=is_key & (d < HALF), other=0.0
        ).to(tl.float32)
        high = tl.load(query + HALF, mask=is_query & (d < HALF), other=0.0).to(tl.float32) + tl.load(
            key + HALF, mask=is_key & (d < HALF), other=0.0
        ).to(tl.float32)
        c = tl.load(cos + position * HALF + d).to(tl.float32)
        s = tl.load(sin + position * HALF + d).to(tl.float32)
        a = low * c + high * s
        b = high * c - low * s
        row = token * (H + 2 * G)
        if NORM:
            at = qkv + (row + h) * D + d
            normed = (is_query | is_key) & (d < HALF)
            x = tl.load(at, mask=normed, other=0.0).to(tl.float32)
            y = tl.load(at + HALF, mask=normed, other=0.0).to(tl.float32)
            r = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / D + eps)[:, None]
            x, y = x * r, y * r
            q_low += tl.sum(tl.where(is_query, a * x, 0.0), 0)
            q_high += tl.sum(tl.where(is_query, b * y, 0.0), 0)
            k_low += tl.sum(tl.where(is_key, a * x, 0.0), 0)
            k_high += tl.sum(tl.where(is_key, b * y, 0.0), 0)
            a, b = a * w_low, b * w_high
            mean = ((tl.sum(a * x, 1) + tl.sum(b * y, 1)) / D)[:, None]
            a, b = r * (a - x * mean), r * (b - y * mean)
        a += tl.load(value, mask=is_value & (d < HALF), other=0.0).to(tl.float32)
        b += tl.load(value + HALF, mask=is_value & (d < HALF), other=0.0).to(tl.float32)
        spot = out + (row + h) * D + d
        tl.store(spot, a.to(out.dtype.element_ty), mask=inside)
        tl.store(spot + HALF, b.to(out.dtype.element_ty), mask=inside)
    if NORM:
        spots = partial + first * 2 * D + flat
        tl.store(spots, q_low)
        tl.store(spots + HALF, q_high)
        tl.store(spots + D, k_low)
        tl.store(spots + D + HALF, k_high)


def rotate(qkv: Tensor, groups: int, size: int, how: Rotary) -> tuple[Heads, HeadsBack]:
    """Split rows of q, k and v into queries [T, H, D], keys and values [T, G, D], and apply the norms of heads, if the
    model has them, and rotary positions. `how.slots_T` has the numbers from 0 to T - 1. The backward pass also returns
    the gradients of the norms' weights."""
    T, H, G, D = qkv.shape[0], how.heads, groups, size
    k = torch.empty((T, G, D), dtype=qkv.dtype, device=qkv.device)
    v = torch.empty_like(k)
    q = kernels.rope_store(qkv, k, v, how)
    norms = [w for w in (how.q_norm, how.k_norm) if w is not None]
    read = qkv if norms else None  # without norms, its gradient does not depend on it

    def back(dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, Grads]:
        out = torch.empty((T, (H + 2 * G) * D), dtype=dq.dtype, device=dq.device)
        programs = min(T, PROGRAMS) if norms else T
        partial = torch.empty((programs, 2, D) if norms else 0, dtype=torch.float32, device=dq.device)
        _turn_back[(programs,)](
            dq.contiguous(), dk.contiguous(), dv.contiguous(), *how[:3], out if read is None else read,
            *(norms or (out, out)), how.eps, out, partial, T, programs,
            H=H, G=G, HALF=D // 2, HEADS=1 << (H + 2 * G - 1).bit_length(), NORM=bool(norms), num_warps=4,
        )  # fmt: skip
        found = zip(norms, partial.sum(0), strict=True) if norms else ()
        return out, [add_vectors([w], part)[0] if w.requires_grad else None for w, part in found]

    return (q, k, v), back


# -- gated MLP ------------------------------------------------------------------------------------------------------


@triton.jit
def _silu_mul_backward(grad, x, out, I: tl.constexpr, BLOCK: tl.constexpr):  # noqa: E741
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < I
    g = tl.load(grad + row * I + i, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(x + row * 2 * I + i, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * I + I + i, mask=inside, other=0.0).to(tl.float32)
    s = tl.sigmoid(gate)
    kind = out.dtype.element_ty
    tl.store(out + row * 2 * I + i, (g * up * s * (1 + gate * (1 - s))).to(kind), mask=inside)
    tl.store(out + row * 2 * I + I + i, (g * gate * s).to(kind), mask=inside)


def silu_mul(gate_up: Tensor, size: int, room: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """silu(gate) · up, with `room` more columns, which are not written. Its backward pass overwrites `gate_up`."""
    gate_up = gate_up.contiguous()

    def back(grad: Tensor) -> Tensor:
        _silu_mul_backward[(gate_up.shape[0], triton.cdiv(size, 1024))](
            grad.contiguous(), gate_up, gate_up, I=size, BLOCK=1024, num_warps=4
        )
        return gate_up

    return kernels.silu_mul(gate_up, size, room), back

"""The operations between a layer's matrix products: norms, rotary positions, activations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from interplay.models.kernels.launch import early, power
from interplay.models.rotary import Rotary


@triton.jit(do_not_specialize=["T"])  # it would be compiled again for some numbers of rows
def _add_norm(
    x, stride, residual, weight, out, eps, T, C: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr,
    PARTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    inside = c < C
    w = tl.load(weight + c, mask=inside, other=0.0)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    value = tl.load(x + row * stride + c, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        for part in tl.static_range(1, PARTS):
            value += tl.load(x + (part * T + row) * C + c, mask=inside, other=0.0)
        value = value.to(w.dtype).to(tl.float32)  # the output of a layer is rounded once
    if ADD:
        value += tl.load(residual + row * C + c, mask=inside, other=0.0)
        tl.store(residual + row * C + c, value, mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, 0) / C + eps)
    tl.store(out + row * C + c, (value * scale).to(w.dtype) * w, mask=inside)


def add_norm(x_TC: Tensor, residual_TC: Tensor | None, weight_C: Tensor, eps: float) -> Tensor:
    """RMSNorm of x or, with a residual, of x + residual; that sum is also stored in `residual`. The residual stream is
    fp32, because with rounding at every layer two ways of computing it would drift apart. x may be the fp32 parts
    [S, T, C] of a layer's output (`joined`)."""
    parts = x_TC.shape[0] if x_TC.dim() == 3 else 0
    T, C = x_TC.shape[-2:]
    out = torch.empty((T, C), dtype=weight_C.dtype, device=x_TC.device)
    block = power(C)
    _add_norm[(T,)](
        x_TC, x_TC.stride(-2), x_TC if residual_TC is None else residual_TC, weight_C, out, eps, T,
        C=C, BLOCK=block, ADD=residual_TC is not None, PARTS=parts, num_warps=4 if block <= 2048 else 8, **early(out),
    )  # fmt: skip
    return out


def turns(cos: Tensor, sin: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """The rotary tables that `rope_store` takes in every layer; here they are the given tables."""
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


def rope_store(qkv_TN: Tensor, keys: Tensor, values: Tensor, new: Rotary) -> Tensor:
    """Rotate queries and keys by their positions (after their norms, if the model has them), and store keys and values
    in their slots. Returns the queries [T, H, D]."""
    T, H = qkv_TN.shape[0], new.heads
    _, G, D = keys.shape
    out = torch.empty((T, H, D), dtype=qkv_TN.dtype, device=qkv_TN.device)
    norms = (new.cos, new.cos) if new.q_norm is None else (new.q_norm, new.k_norm)
    _rope_store[(T,)](
        qkv_TN, qkv_TN.stride(0), *new[:4], out, keys, values, *norms, new.eps,
        H=H, G=G, HALF=D // 2, HEADS=power(H + 2 * G), NORM=new.q_norm is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _silu_mul(x, stride, out, out_stride, I: tl.constexpr, BLOCK: tl.constexpr):  # noqa: E741
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < I
    gate = tl.load(x + row * stride + i, mask=inside, other=0.0)
    up = tl.load(x + row * stride + I + i, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    tl.store(out + row * out_stride + i, (wide * tl.sigmoid(wide)).to(gate.dtype) * up, mask=inside)


def silu_mul(gate_up_TN: Tensor, size: int, room: int = 0) -> Tensor:
    """silu(gate) · up, for rows that hold gate and up side by side. The result has `room` more columns, which are not
    written."""
    T = gate_up_TN.shape[0]
    out = torch.empty((T, size + room), dtype=gate_up_TN.dtype, device=gate_up_TN.device)
    block = 1024
    _silu_mul[(T, triton.cdiv(size, block))](
        gate_up_TN, gate_up_TN.stride(0), out, size + room, I=size, BLOCK=block, num_warps=4
    )
    return out


@triton.jit
def _rotate_heads(
    qkv, stride, cos, sin, out, H: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HEADS)[:, None]
    d = tl.arange(0, WIDTH)[None, :]
    D: tl.constexpr = 2 * HALF
    inside = (h < 2 * H) & (d < HALF)
    at = qkv + token * stride + h * D + d
    a = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + token * HALF + d, mask=d < HALF, other=0.0)
    s = tl.load(sin + token * HALF + d, mask=d < HALF, other=0.0)
    spot = out + (token * 2 * H + h) * D + d
    tl.store(spot, (a * c - b * s).to(out.dtype.element_ty), mask=inside)
    tl.store(spot + HALF, (b * c + a * s).to(out.dtype.element_ty), mask=inside)


def rotate_heads(qkv_TN: Tensor, cos_TF: Tensor, sin_TF: Tensor, heads: int) -> Tensor:
    """The queries and keys [T, 2, H, D] of rows that hold queries, keys and values of as many heads each, rotated by
    each token's own angles. D is twice the number of angles F."""
    T, F = cos_TF.shape
    out = torch.empty((T, 2, heads, 2 * F), dtype=qkv_TN.dtype, device=qkv_TN.device)
    _rotate_heads[(T,)](
        qkv_TN, qkv_TN.stride(0), cos_TF, sin_TF, out,
        H=heads, HALF=F, HEADS=power(2 * heads), WIDTH=power(F), num_warps=4,
    )  # fmt: skip
    return out

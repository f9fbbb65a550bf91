"""The learner's forward pass on a GPU: packed tokens without padding, and fused kernels with their own backward.

It uses the same blocks of weights as the engine (`models/fused.py`) and rounds at the same places. `logprobs.py` turns
the hidden states into log-probs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import embedding, linear
from torch.utils.checkpoint import checkpoint

from interplay.models import kernels
from interplay.models.fused import Block, Fused, Layer, side_by_side
from interplay.models.rotary import Rotary
from interplay.models.senses import Overlay
from interplay.models.stacked import Mix, Stacked
from interplay.training.batch import MicroBatch
from interplay.training.direct import direct
from interplay.training.spans import varlen

# Shapes: T tokens, C hidden size, N outputs, H query heads, G key-value heads, D head size, R ranks.


# -- norm -----------------------------------------------------------------------------------------------------------


@triton.jit
def _norm_forward(
    x, residual, weight, out, total, scales, eps, C: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr
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
    tl.store(out + row * C + c, (value * scale).to(w.dtype) * w, mask=inside)


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


class AddNorm(torch.autograd.Function):
    """RMSNorm of x + residual. Returns the norm and the sum, which is fp32 like the residual. Without a residual, the
    sum is x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        x = x.contiguous()
        T, C = x.shape
        out = torch.empty((T, C), dtype=weight.dtype, device=x.device)
        total = torch.empty((T, C), dtype=torch.float32, device=x.device)
        scales = torch.empty(T, dtype=torch.float32, device=x.device)
        block = 1 << (C - 1).bit_length()
        _norm_forward[(T,)](
            x, x if residual is None else residual, weight, out, total, scales, eps,
            C=C, BLOCK=block, ADD=residual is not None, num_warps=4 if block <= 2048 else 8,
        )  # fmt: skip
        ctx.save_for_backward(total, scales, weight)
        ctx.added, ctx.kind = residual is not None, x.dtype
        return out, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_total: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        total, scales, weight = ctx.saved_tensors
        T, C = total.shape
        to_x, to_residual = torch.empty_like(total, dtype=ctx.kind), torch.empty_like(total)
        programs = min(T, 528)
        partial = torch.empty((programs, C), dtype=torch.float32, device=total.device)
        block = 1 << (C - 1).bit_length()
        _norm_backward[(programs,)](
            grad.contiguous(), grad_total.contiguous(), total, scales, weight, to_x, to_residual, partial, T, programs,
            C=C, BLOCK=block, num_warps=4 if block <= 2048 else 8,
        )  # fmt: skip
        to_weight = partial.sum(0).to(weight.dtype) if ctx.needs_input_grad[2] else None
        return to_x, to_residual if ctx.added else None, to_weight, None


# -- rotary positions -----------------------------------------------------------------------------------------------


@triton.jit
def _turn_back(
    dq, dk, dv, cos, sin, positions, out, H: tl.constexpr, G: tl.constexpr, HALF: tl.constexpr, HEADS: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    position = tl.load(positions + token)
    h = tl.arange(0, HEADS)[:, None]
    d = tl.arange(0, HALF)[None, :]
    D: tl.constexpr = 2 * HALF
    query, key = dq + (token * H + h) * D + d, dk + (token * G + h - H) * D + d
    value = dv + (token * G + h - H - G) * D + d
    is_query, is_key, is_value = h < H, (h >= H) & (h < H + G), (h >= H + G) & (h < H + 2 * G)
    low = tl.load(query, mask=is_query & (d < HALF), other=0.0).to(tl.float32) + tl.load(
        key, mask=is_key & (d < HALF), other=0.0
    ).to(tl.float32)
    high = tl.load(query + HALF, mask=is_query & (d < HALF), other=0.0).to(tl.float32) + tl.load(
        key + HALF, mask=is_key & (d < HALF), other=0.0
    ).to(tl.float32)
    c = tl.load(cos + position * HALF + d).to(tl.float32)
    s = tl.load(sin + position * HALF + d).to(tl.float32)
    a = low * c + high * s + tl.load(value, mask=is_value & (d < HALF), other=0.0).to(tl.float32)
    b = high * c - low * s + tl.load(value + HALF, mask=is_value & (d < HALF), other=0.0).to(tl.float32)
    at = out + (token * (H + 2 * G) + h) * D + d
    inside = (h < H + 2 * G) & (d < HALF)
    tl.store(at, a.to(out.dtype.element_ty), mask=inside)
    tl.store(at + HALF, b.to(out.dtype.element_ty), mask=inside)


class Rotate(torch.autograd.Function):
    """Split rows of q, k and v into queries [T, H, D], keys and values [T, G, D], and apply rotary positions. `order`
    has the numbers from 0 to T - 1."""

    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, order: Tensor, heads: int, groups: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        T, D = qkv.shape[0], 2 * cos.shape[1]
        k = torch.empty((T, groups, D), dtype=qkv.dtype, device=qkv.device)
        v = torch.empty_like(k)
        q = kernels.rope_store(qkv, k, v, Rotary(cos, sin, positions, order, heads))
        ctx.save_for_backward(cos, sin, positions)
        return q, k, v

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor, None, None, None, None, None, None]:
        cos, sin, positions = ctx.saved_tensors
        T, H, D = dq.shape
        G = dk.shape[1]
        out = torch.empty((T, (H + 2 * G) * D), dtype=dq.dtype, device=dq.device)
        _turn_back[(T,)](
            dq.contiguous(), dk.contiguous(), dv.contiguous(), cos, sin, positions, out,
            H=H, G=G, HALF=D // 2, HEADS=1 << (H + 2 * G - 1).bit_length(), num_warps=4,
        )  # fmt: skip
        return out, None, None, None, None, None, None


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


class SiluMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, size: int) -> Tensor:
        gate_up = gate_up.contiguous()
        ctx.save_for_backward(gate_up)
        ctx.size = size
        return kernels.silu_mul(gate_up, size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (gate_up,) = ctx.saved_tensors
        out = torch.empty_like(gate_up)
        _silu_mul_backward[(gate_up.shape[0], triton.cdiv(ctx.size, 1024))](
            grad.contiguous(), gate_up, out, I=ctx.size, BLOCK=1024, num_warps=4
        )
        return out, None


# -- matrix products ------------------------------------------------------------------------------------------------


class Together(torch.autograd.Function):
    """One matrix product for layers whose matrices are stored together. Each layer's parameters get their gradients.

    With `copied`, the joined matrix is a copy. It is not kept for the backward pass, which joins the parameters again:
    FSDP frees their memory in between."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, copied: bool, count: int, *parameters: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, *(parameters[:count] if copied else (weight,)))
        ctx.sizes = [p.shape[0] for p in parameters[:count]]
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grad = grad.contiguous()
        to_x = grad @ side_by_side(weights) if ctx.needs_input_grad[0] else None
        wanted = ctx.needs_input_grad[5:]
        out: list[Tensor | None] = [None] * len(wanted)
        count = len(ctx.sizes)
        if any(wanted[:count]):
            out[:count] = (grad.t() @ x).split(ctx.sizes)
        if any(wanted[count:]):
            out[count:] = grad.sum(0).split(ctx.sizes)
        return (to_x, None, None, None, None, *out)


class TogetherWithAdapters(torch.autograd.Function):
    """The same over a frozen base, plus the adapter of each token: y = x·Wᵀ + ((x·Dᵀ) ∘ keep)·U.

    It is one product of [x, low] with [W, Uᵀ], so that the sum is rounded once, as in the engine (see
    models/kernels/adapters.py: an update would be lost if the base's part were rounded first). If the input is wider
    than the output, its gradient is one product too: concatenating costs less than another pass over the wide result. D
    and U and their gradients are fp32. `parameters` are the layers' matrices if `weight` is a copy of them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, keep: Tensor,
        *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        down, up = down.to(x.dtype), up.to(x.dtype)
        low = linear(x, down).mul_(keep)
        ctx.save_for_backward(x, down, up, keep, low, *(parameters or (weight,)))
        return linear(torch.cat((x, low), 1), torch.cat((weight, up.t()), 1), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, down, up, keep, low, *weights = ctx.saved_tensors
        weight = side_by_side(weights)
        grad = grad.contiguous()
        to_low = (grad @ up.t()).mul_(keep)
        if weight.shape[1] > weight.shape[0]:
            to_x = torch.cat((grad, to_low), 1) @ torch.cat((weight, down))
        else:
            to_x = (grad @ weight).addmm_(to_low, down)
        beyond = [None] * (len(ctx.needs_input_grad) - 6)
        return to_x, None, None, (to_low.t() @ x).float(), (low.t() @ grad).float(), None, *beyond


def _apply(block: Block, x_TC: Tensor, mix: Mix | None) -> Tensor:
    bias = None if block.bias is None else block.bias[: block.rows]
    pair = None
    if mix is not None:
        assert isinstance(mix.source, Stacked)
        pair = mix.source.joined(block.layers)
    weights = [m.weight for m in block.layers]
    if mix is None or pair is None:
        biases = [] if bias is None else [m.bias for m in block.layers]
        return direct(Together, x_TC, block.weight, bias, block.copied, len(block.layers), *weights, *biases)
    keep_TR = mix.keep.to(x_TC.dtype).reshape(-1, mix.keep.shape[-1]).repeat(1, len(block.layers))
    return direct(TogetherWithAdapters, x_TC, block.weight, bias, *pair, keep_TR, *(weights if block.copied else ()))


# -- the decoder ----------------------------------------------------------------------------------------------------


def hidden_states(
    fused: Fused, batch: MicroBatch, mix: Mix | None, save: bool, overlay: Overlay | None = None
) -> Tensor:
    """The normed hidden states [T, C] of packed sequences. With `save`, layers keep only their input, and the backward
    pass computes them again."""
    ids_T, positions_T, spans, cos, sin = batch.ids_BL[0], batch.positions_BL[0], batch.spans, fused.cos, fused.sin
    assert spans is not None
    order_T = torch.arange(len(ids_T), device=ids_T.device)
    if overlay is not None:
        cos, sin, positions_T = fused.tables(overlay, positions_T)

    def layer_forward(layer: Layer, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        normed, total = direct(AddNorm, x, residual, layer.norm, fused.eps)
        qkv = _apply(layer.qkv, normed, mix)
        groups = (layer.qkv.rows // fused.size - fused.heads) // 2
        if layer.q_norm is not None and layer.k_norm is not None:
            qkv = _head_norms(qkv, layer, fused, groups)
        q, k, v = direct(Rotate, qkv, cos, sin, positions_T, order_T, fused.heads, groups)
        mixed = varlen(q, k, v, spans, fused.scale, layer.window)
        x = _apply(layer.out, mixed.reshape(mixed.shape[0], -1), mix)
        normed, total = direct(AddNorm, x, total, layer.mlp_norm, fused.eps)
        inner = direct(SiluMul, _apply(layer.gate_up, normed, mix), fused.inner)
        return _apply(layer.down, inner, mix), total

    x = embedding(ids_T, fused.model.get_input_embeddings().weight)
    if overlay is not None:
        x = overlay.lay(x)
    residual: Tensor | None = None
    for index in range(fused.depth):
        if save and torch.is_grad_enabled():
            x, residual = checkpoint(fused.run, index, layer_forward, x, residual, use_reentrant=False)
        else:
            x, residual = fused.run(index, layer_forward, x, residual)
    normed, _ = direct(AddNorm, x, residual, fused.norm, fused.eps)
    return normed


def _head_norms(qkv: Tensor, layer: Layer, fused: Fused, groups: int) -> Tensor:
    """Qwen3 normalises every query and key head before it applies rotary positions."""
    heads = qkv.unflatten(1, (-1, fused.size))
    q, k, v = heads.split([fused.heads, groups, groups], dim=1)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + fused.eps)).to(x.dtype)

    assert layer.q_norm is not None and layer.k_norm is not None
    return torch.cat([norm(q, layer.q_norm), norm(k, layer.k_norm), v], dim=1).flatten(1)

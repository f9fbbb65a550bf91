"""The learner's forward pass on a GPU: packed tokens without padding, and fused kernels with their own backward.

It uses the same blocks of weights as the engine (`models/fused.py`) and rounds at the same places. `logprobs.py` turns
the hidden states into log-probs.

Each part of a layer is a function. It returns its result and its backward pass: a function from the gradient of the
result to those of the inputs. For autograd, a whole layer is one function (`LayerPass`), because autograd's own work
for each function takes the host longer than launching a kernel. Gradients of weights are added up in fp32 where the
optimiser reads them, by the matrix products that compute them (`gradients.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from interplay.models.fused import Block, Fused, Layer, side_by_side
from interplay.models.rotary import Rotary
from interplay.models.senses import Overlay
from interplay.models.stacked import Mix, Stacked
from interplay.training.batch import MicroBatch
from interplay.training.direct import direct
from interplay.training.gradients import add_products, add_rows, add_to_leaf, add_vectors
from interplay.training.layer_parts import Grads, add_norm, rotate, silu_mul
from interplay.training.spans import Spans, attended

# Shapes: T tokens, C hidden size, N outputs, H query heads, G key-value heads, D head size, R ranks.


@dataclass
class _Pass:
    """What all layers of a pass need."""

    fused: Fused
    cos: Tensor
    sin: Tensor
    positions_T: Tensor
    order_T: Tensor  # the numbers from 0 to T - 1
    spans: Spans
    mix: Mix | None
    _scales: dict[int, Tensor] = field(default_factory=dict)

    def pair(self, block: Block) -> tuple[Tensor, Tensor] | None:
        """The stacked adapters of a block; None if no adapter has weights for it."""
        if self.mix is None:
            return None
        assert isinstance(self.mix.source, Stacked)
        return self.mix.source.joined(block.layers)

    def rounded(self, block: Block, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        assert self.mix is not None and isinstance(self.mix.source, Stacked)
        return self.mix.source.rounded(block.layers, kind)

    def scales(self, layers: int, kind: torch.dtype) -> Tensor:
        """The scale of each token's own adapter on that adapter's ranks [T, layers · R], and 0 elsewhere."""
        if layers not in self._scales:
            assert self.mix is not None
            keep = self.mix.keep.to(kind)
            self._scales[layers] = keep.reshape(-1, keep.shape[-1]).repeat(1, layers)
        return self._scales[layers]

    def heads(self, layer: Layer) -> tuple[int, int, Rotary]:
        """The number of key-value heads, the size of a head, and how heads are rotated."""
        heads, size = self.fused.heads, self.fused.size
        tables = self.cos, self.sin, self.positions_T, self.order_T
        how = Rotary(*tables, heads, layer.q_norm, layer.k_norm, self.fused.eps)
        return (layer.qkv.rows // size - heads) // 2, size, how

    def room(self, block: Block) -> int:
        """The columns that `_product` wants beside its input. A multiple of 8, so that rows are aligned."""
        pair = self.pair(block)
        return 0 if pair is None else -(-pair[0].shape[0] // 8) * 8


# -- matrix products ------------------------------------------------------------------------------------------------

ProductBack = Callable[[Tensor, bool], tuple[Tensor | None, Grads]]  # of the result's gradient; whether x's is wanted


def _trained(block: Block, given: _Pass) -> list[Tensor]:
    """The tensors whose gradients the backward pass of `_product` returns, in this order."""
    pair = given.pair(block)
    if pair is not None:
        return list(pair)
    return [m.weight for m in block.layers] + [m.bias for m in block.layers if block.bias is not None]


def _product(block: Block, wide: Tensor, given: _Pass) -> tuple[Tensor, ProductBack]:
    """One matrix product for layers whose matrices are stored together. `wide` is their input, with room for what the
    adapters need (`_Pass.room`)."""
    bias = None if block.bias is None else block.bias[: block.rows]
    layers, copied, weight = block.layers, block.copied, block.weight
    # If a layer's matrices are joined in a copy, the backward pass joins them again: FSDP frees their memory meanwhile.
    matrices = [m.weight for m in layers] if copied else [weight]
    if given.pair(block) is not None:
        return _product_with_adapters(block, wide, bias, matrices, given)
    x = wide
    weights, biases = [m.weight for m in layers], [m.bias for m in layers if bias is not None]

    def back(grad: Tensor, wants_x: bool) -> tuple[Tensor | None, Grads]:
        grad = grad.contiguous()
        grads: Grads = [None] * (len(weights) + len(biases))
        if any(w.requires_grad for w in weights):
            grads[: len(weights)] = add_products(weights, grad, x)
        if any(b.requires_grad for b in biases):
            grads[len(weights) :] = add_vectors(biases, grad.sum(0, dtype=torch.float32))
        return grad @ side_by_side(matrices) if wants_x else None, grads

    return linear(x, weight, bias), back


def _product_with_adapters(
    block: Block, wide: Tensor, bias: Tensor | None, matrices: list[Tensor], given: _Pass
) -> tuple[Tensor, ProductBack]:
    """The same over a frozen base, plus the adapter of each token: y = x·Wᵀ + ((x·Dᵀ) ∘ scales)·U.

    It is one product of [x, low] with [W, Uᵀ], so that the sum is rounded once, as in the engine (see
    models/kernels/adapters.py: an update would be lost if the base's part were rounded first). `low` is written beside
    x. If the input is wider than the output, its gradient is one product too: concatenating costs less than another
    pass over the wide result. D and U and their gradients are fp32."""
    pair = given.pair(block)
    assert pair is not None
    down, up = given.rounded(block, wide.dtype)
    scales = given.scales(len(block.layers), wide.dtype)
    size, ranks = block.weight.shape[1], down.shape[0]
    x, low = wide[:, :size], wide[:, size : size + ranks]
    torch.mm(x, down.t(), out=low)
    low.mul_(scales)
    out = linear(wide[:, : size + ranks], torch.cat((block.weight, up), 1), bias)

    def back(grad: Tensor, wants_x: bool) -> tuple[Tensor | None, Grads]:
        grad = grad.contiguous()
        to_low = (grad @ up).mul_(scales)
        grads: Grads = [None, None]
        if pair[0].requires_grad:
            add_to_leaf(pair[0], to_low, x)
            add_to_leaf(pair[1], low, grad)
        if not wants_x:
            return None, grads
        weight = side_by_side(matrices)
        if weight.shape[1] > weight.shape[0]:
            return torch.cat((grad, to_low), 1) @ torch.cat((weight, down)), grads
        return (grad @ weight).addmm_(to_low, down), grads

    return out, back


def _widened(x: Tensor, room: int) -> Tensor:
    """A copy of x with `room` more columns; x itself if none are wanted."""
    if not room:
        return x
    out = x.new_empty((x.shape[0], x.shape[1] + room))
    out[:, : x.shape[1]] = x
    return out


# -- the decoder ----------------------------------------------------------------------------------------------------

LayerBack = Callable[[Tensor, Tensor, bool], tuple[Tensor | None, Tensor | None, Grads]]


def _layer(
    layer: Layer, x: Tensor, residual: Tensor | None, given: _Pass, keep: bool
) -> tuple[Tensor, Tensor, LayerBack]:
    """A layer's result, its residual, and its backward pass, which can be called once, and only with `keep`."""
    first, eps = residual is None, given.fused.eps
    normed, total, norm_back = add_norm(x, residual, layer.norm, eps, given.room(layer.qkv))
    qkv, qkv_back = _product(layer.qkv, normed, given)
    heads, turn_back = rotate(qkv, *given.heads(layer))
    mixed, attend_back = attended(heads, given.spans, given.fused.scale, layer.window, keep)
    shape = mixed.shape
    x, out_back = _product(layer.out, _widened(mixed.reshape(shape[0], -1), given.room(layer.out)), given)
    normed, total, mlp_norm_back = add_norm(x, total, layer.mlp_norm, eps, given.room(layer.gate_up))
    gate_up, gate_up_back = _product(layer.gate_up, normed, given)
    inner, silu_back = silu_mul(gate_up, given.fused.inner, given.room(layer.down))
    x, down_back = _product(layer.down, inner, given)
    # In a list, from which each part is taken when it is used, so that what it has kept is freed.
    parts: list[Any] = [
        norm_back, qkv_back, turn_back, attend_back, out_back, mlp_norm_back, gate_up_back, silu_back, down_back
    ]  # fmt: skip

    def back(grad: Tensor, grad_total: Tensor, wants_x: bool) -> tuple[Tensor | None, Tensor | None, Grads]:
        grad, to_down = parts.pop()(grad, True)
        grad = parts.pop()(grad)
        grad, to_gate_up = parts.pop()(grad, True)
        grad, grad_total, to_mlp_norm = parts.pop()(grad, grad_total)
        grad, to_out = parts.pop()(grad, True)
        grads = parts.pop()(grad.view(shape))
        grad, to_norms = parts.pop()(*grads)
        to_x, to_qkv = parts.pop()(grad, wants_x or layer_norm.requires_grad)
        to_residual = to_norm = None
        if to_x is not None:
            to_x, to_residual, to_norm = parts.pop()(to_x, grad_total)
        found = [to_norm, to_mlp_norm, *to_norms, *to_qkv, *to_out, *to_gate_up, *to_down]
        return to_x, None if first else to_residual, found

    layer_norm = layer.norm
    return x, total, back


class LayerPass(torch.autograd.Function):
    """A layer. With `again`, which returns its weights, only the inputs are kept, and the backward pass computes the
    layer again. `trained` are the tensors that may get gradients, in the order in which `_layer` returns these."""

    @staticmethod
    def forward(
        ctx: Any, layer: Layer, given: _Pass, again: Callable[[], Layer] | None, x: Tensor, residual: Tensor | None,
        *trained: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        out, total, back = _layer(layer, x, residual, given, again is None)
        if again is None:
            ctx.back = back
        else:
            ctx.save_for_backward(x, residual)
            ctx.back, ctx.given = again, given
        ctx.again = again is not None
        return out, total

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        back, ctx.back = ctx.back, None
        if ctx.again:
            x, residual = ctx.saved_tensors
            back = _layer(back(), x, residual, ctx.given, True)[2]
        to_x, to_residual, grads = back(grad, grad_total, ctx.needs_input_grad[3])
        return None, None, None, to_x, to_residual, *grads


class AddNorm(torch.autograd.Function):
    """The final norm, of x + residual."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        out, _, ctx.back = add_norm(x, residual, weight, eps)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        back, ctx.back = ctx.back, None
        to_x, to_residual, to_weight = back(grad, grad.new_zeros(grad.shape, dtype=torch.float32))
        return to_x, to_residual, to_weight, None


class Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids, weight)
        return embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None]:
        ids, weight = ctx.saved_tensors
        return None, add_rows(weight, ids, grad.contiguous())


def hidden_states(
    fused: Fused, batch: MicroBatch, mix: Mix | None, save: bool, overlay: Overlay | None = None
) -> Tensor:
    """The normed hidden states [T, C] of packed sequences. With `save`, layers keep only their input, and the backward
    pass computes them again."""
    ids_T, positions_T, spans, cos, sin = batch.ids_BL[0], batch.positions_BL[0], batch.spans, fused.cos, fused.sin
    assert spans is not None
    if overlay is not None:
        cos, sin, positions_T = fused.tables(overlay, positions_T)
    order_T = torch.arange(len(ids_T), device=ids_T.device)
    given = _Pass(fused, cos, sin, positions_T, order_T, spans, mix)

    def work(index: int, layer: Layer, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if not torch.is_grad_enabled():
            return _layer(layer, x, residual, given, False)[:2]
        norms = [w for w in (layer.norm, layer.mlp_norm, layer.q_norm, layer.k_norm) if w is not None]
        blocks = layer.qkv, layer.out, layer.gate_up, layer.down
        trained = [t for block in blocks for t in _trained(block, given)]
        again = partial(fused.layer, index) if save else None
        out, total = LayerPass.apply(layer, given, again, x, residual, *norms, *trained)
        return out, total

    x = direct(Embed, ids_T, fused.model.get_input_embeddings().weight)
    if overlay is not None:
        x = overlay.lay(x)
    residual: Tensor | None = None
    for index in range(fused.depth):
        x, residual = fused.run(index, partial(work, index), x, residual)
    normed: Tensor = direct(AddNorm, x, residual, fused.norm, fused.eps)
    return normed

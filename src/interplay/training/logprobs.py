"""Log-probs and entropies from hidden states on a GPU, with their own backward pass.

They are computed a few thousand rows at a time, and the backward pass computes the logits again, so the full [tokens ×
vocabulary] matrix is never in memory.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from interplay.models import kernels
from interplay.training.gradients import add_products
from interplay.training.logits import GPU_LOGITS

# Shapes: M predictions, V vocabulary.


@triton.jit
def _logit_stats(logits, targets, heat, V, lse, logp, entropy, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    peak = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    for start in range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(logits + row * V + i, mask=i < V, other=float("-inf")).to(tl.float32) / heat
        above = tl.maximum(peak, x)
        anchor = tl.where(above > float("-inf"), above, 0.0)
        shrink = tl.exp(peak - anchor)
        mass = tl.exp(x - anchor)
        total = total * shrink + mass
        mean = mean * shrink + tl.where(mass > 0, x * mass, 0.0)
        peak = above
    top = tl.max(peak, 0)
    weight = tl.exp(peak - top)
    sums = tl.sum(total * weight, 0)
    log_sum = top + tl.log(sums)
    x = tl.load(logits + row * V + tl.load(targets + row)).to(tl.float32) / heat
    tl.store(lse + row, log_sum)
    tl.store(logp + row, x - log_sum)
    tl.store(entropy + row, log_sum - tl.sum(mean * weight, 0) / sums)


@triton.jit
def _logit_grad(
    logits, targets, heat, V, lse, entropy, grad_logp, grad_entropy, out, ENTROPY: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row * V + i, mask=i < V, other=float("-inf")).to(tl.float32) / heat
    log_sum = tl.load(lse + row)
    p = tl.exp(x - log_sum)
    g = tl.load(grad_logp + row)
    d = g * (tl.where(i == tl.load(targets + row), 1.0, 0.0) - p)
    if ENTROPY:
        d -= tl.load(grad_entropy + row) * tl.where(p > 0, p * (x - log_sum + tl.load(entropy + row)), 0.0)
    tl.store(out + row * V + i, (d / heat).to(out.dtype.element_ty), mask=i < V)


class LogProbs(torch.autograd.Function):
    """Log-probs of the targets and entropies, from hidden states and the output matrix. If the matrix is frozen, the
    forward pass also stores ∂ log-prob / ∂ hidden. The backward pass then needs no logits, unless the loss uses the
    gradient of the entropy."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, heat: float) -> tuple[Tensor, Tensor]:
        M, V = hidden.shape[0], weight.shape[0]
        lse, logp, entropy = (torch.empty(M, dtype=torch.float32, device=hidden.device) for _ in range(3))
        slope = torch.empty_like(hidden) if ctx.needs_input_grad[:2] == (True, False) else None
        ones = torch.ones(M, dtype=torch.float32, device=hidden.device) if slope is not None else None
        rows = max(1, GPU_LOGITS // V)
        for a in range(0, M, rows):
            part = slice(a, a + rows)
            logits = kernels.logits(hidden[part], weight)
            _logit_stats[(logits.shape[0],)](
                logits, targets[part], heat, V, lse[part], logp[part], entropy[part], BLOCK=2048, num_warps=8
            )
            if slope is not None and ones is not None:
                grad = _logits_backward(logits, targets[part], heat, lse[part], entropy[part], ones[part], None, hidden)
                slope[part] = grad @ weight
        ctx.save_for_backward(hidden, weight, targets, lse, entropy, slope)
        ctx.heat, ctx.rows = heat, rows
        ctx.set_materialize_grads(False)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, grad_logp: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, targets, lse, entropy, slope = ctx.saved_tensors
        if grad_logp is None:
            grad_logp = torch.zeros_like(lse)
        grad_logp = grad_logp.float().contiguous()
        if slope is not None and grad_entropy is None:
            return (slope * grad_logp.unsqueeze(1)).to(slope.dtype), None, None, None
        if grad_entropy is not None:
            grad_entropy = grad_entropy.float().contiguous()
        M = hidden.shape[0]
        to_hidden = torch.empty_like(hidden)
        to_weight: Tensor | None = None  # of a parameter without a master, added up over the parts
        for a in range(0, M, ctx.rows):
            part = slice(a, a + ctx.rows)
            logits = kernels.logits(hidden[part], weight)
            grad = _logits_backward(
                logits, targets[part], ctx.heat, lse[part], entropy[part], grad_logp[part],
                None if grad_entropy is None else grad_entropy[part], hidden,
            )  # fmt: skip
            to_hidden[part] = grad @ weight
            if ctx.needs_input_grad[1]:
                (share,) = add_products([weight], grad, hidden[part])
                if share is not None:
                    wide = share if ctx.rows >= M else share.float()
                    to_weight = wide if to_weight is None else to_weight.add_(wide)
        return to_hidden, None if to_weight is None else to_weight.to(weight.dtype), None, None


def _logits_backward(
    logits: Tensor, targets: Tensor, heat: float, lse: Tensor, entropy: Tensor, grad_logp: Tensor,
    grad_entropy: Tensor | None, like: Tensor,
) -> Tensor:  # fmt: skip
    rows, V = logits.shape
    out = torch.empty_like(logits, dtype=like.dtype)
    _logit_grad[(rows, triton.cdiv(V, 4096))](
        logits, targets, heat, V, lse, entropy, grad_logp, lse if grad_entropy is None else grad_entropy, out,
        ENTROPY=grad_entropy is not None, BLOCK=4096, num_warps=8,
    )  # fmt: skip
    return out

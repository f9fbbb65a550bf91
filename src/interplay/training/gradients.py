"""Gradients of weights, added up in fp32 where the optimiser reads them.

Most parameters are in bf16, and the optimiser has an fp32 copy of each, its master (`masters.py`). Autograd would make
a gradient in bf16 for every micro-batch, which is then read again and added to that of the master. The functions here
add to the gradient of the master at once, and return None. A parameter without a master, such as one that FSDP
gathered, gets its gradient from autograd as usual: it is returned.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from interplay.models.kernels.products import add_product, wide_sum
from interplay.training.masters import master_of


def add_products(parameters: Sequence[Tensor], a_TN: Tensor, b_TK: Tensor) -> list[Tensor | None]:
    """The gradients aᵀ·b of parameters [N, K] that are side by side, each with its part of N."""
    sizes, found = [int(p.shape[0]) for p in parameters], [master_of(p) for p in parameters]
    masters = [m for m in found if m is not None]
    if len(masters) < len(parameters):
        return list((a_TN.t() @ b_TK).split(sizes))
    before = [m.grad for m in masters]
    whole = _whole(before)
    if whole is not None:
        add_product(whole, a_TN, b_TK)
    else:
        _add_parts(masters, wide_sum(a_TN, b_TK))
    return [None] * len(masters)


def _whole(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The tensor of which these are all the parts, in their order; None if there is none."""
    first = parts[0]
    if first is None or len(parts) == 1:
        return first
    base = first._base
    at = 0
    for part in parts:
        if part is None or base is None or part._base is not base or part.data_ptr() != base[at:].data_ptr():
            return None
        at += part.shape[0]
    return base if base is not None and at == base.shape[0] else None


def add_vectors(parameters: Sequence[Tensor], gradient: Tensor) -> list[Tensor | None]:
    """The gradients of parameters that are side by side, each with its part of `gradient`, which is in fp32 and which
    nobody else uses."""
    found = [master_of(p) for p in parameters]
    masters = [m for m in found if m is not None]
    if len(masters) < len(parameters):
        parts = gradient.split([len(p) for p in parameters])
        return [part.to(p.dtype) for p, part in zip(parameters, parts, strict=True)]
    _add_parts(masters, gradient)
    return [None] * len(masters)


def add_rows(weight: Tensor, ids_T: Tensor, grad_TC: Tensor) -> Tensor | None:
    """The gradient of a table of which the rows `ids` were read."""
    master = master_of(weight)
    if master is None:
        return torch.ops.aten.embedding_dense_backward(grad_TC, ids_T, weight.shape[0], -1, False)
    if master.grad is None:
        master.grad = torch.zeros_like(master)
    master.grad.index_put_((ids_T,), grad_TC.float(), accumulate=True)  # in a fixed order, unlike index_add_
    return None


def _add_parts(masters: Sequence[Tensor], gradient: Tensor) -> None:
    """Add a gradient of all masters, one after another, to theirs."""
    whole = _whole([m.grad for m in masters])
    if whole is not None:
        whole.add_(gradient)
        return
    for master, part in zip(masters, gradient.split([len(m) for m in masters]), strict=True):
        if master.grad is None:
            master.grad = part
        else:
            master.grad.add_(part)


def add_to_leaf(leaf: Tensor, a_TN: Tensor, b_TK: Tensor) -> None:
    """Add aᵀ·b to the gradient of an fp32 tensor, in one step and not, as autograd does, in two."""
    if leaf.grad is None:
        leaf.grad = wide_sum(a_TN, b_TK)
    else:
        add_product(leaf.grad, a_TN, b_TK)

"""Calls our autograd functions, without torch's bookkeeping where no gradient is wanted."""

from __future__ import annotations

from typing import Any

import torch


class _Unkept:
    """Takes the place of the context of an autograd function and keeps nothing."""

    needs_input_grad = (False,) * 64

    def save_for_backward(self, *tensors: Any) -> None: ...

    def set_materialize_grads(self, value: bool) -> None: ...


def direct(function: type[torch.autograd.Function], *given: Any) -> Any:
    """`function.apply` or, where gradients are disabled, its forward pass alone. Preparing a backward pass takes longer
    than launching a kernel, which is most of the time of a short pass."""
    if torch.is_grad_enabled():
        return function.apply(*given)
    return function.forward(_Unkept(), *given)

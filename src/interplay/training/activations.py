"""Measure the memory that a forward pass keeps for its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.models.attention import using
from interplay.models.shape import decoder_of


class _Attend(torch.autograd.Function):
    """Keeps what attention keeps: queries, keys, values, output, and one number per query and head."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:3], dtype=torch.float32))
        return out


class _Kept:
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        return _Attend.apply(q, k, v)


def saved_bytes(model: PreTrainedModel, tokens: int) -> int:
    """The bytes that a forward pass over `tokens` keeps for its backward pass, without the parameters."""
    with count_saved(model) as counted, using(_Kept()):
        ids = torch.zeros((1, tokens), dtype=torch.int64, device=model.device)
        # Without a mask, transformers would read data to make one.
        mask = torch.ones((1, 1, tokens, tokens), dtype=torch.bool, device=model.device)
        decoder_of(model)(input_ids=ids, position_ids=ids, attention_mask=mask, use_cache=False)
    return sum(counted.values())


@contextmanager
def count_saved(model: torch.nn.Module) -> Iterator[dict[Any, int]]:
    """Yield the storages that autograd keeps inside this context, with their bytes. Parameters are not counted."""
    found: dict[Any, int] = {}
    alive = []  # so that no address is used twice
    known = {p.untyped_storage()._cdata for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            alive.append(storage)
            found[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield found

"""Our attention function, registered with transformers, so that Hugging Face models run as they are.

What a row of the batch attends to is decided by the `Layout` in force, set with `using(layout)` around the
model's forward pass: `Causal` rows and `Masked` rows for the learner, `Paged` rows for the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from interplay.errors import ModelError

NAME = "interplay"
# Shapes: B rows, Q new tokens per row, L attended tokens, H query heads, G key-value heads, D head size.


class Layout(Protocol):
    def attend(self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float) -> Tensor: ...


@dataclass(frozen=True)
class Causal:
    """Each row is one right-padded sequence: padding comes last, so causality alone hides it."""

    def attend(self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float) -> Tensor:
        return scaled_dot_product_attention(
            q_BHQD, k_BGQD, v_BGQD, is_causal=True, scale=scale, enable_gqa=q_BHQD.shape[1] != k_BGQD.shape[1]
        )


@dataclass(frozen=True)
class Masked:
    """Rows that hold one prompt and several continuations of it; `mask[b, 0, q, l]` says who sees whom."""

    mask_B1QL: Tensor

    def attend(self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float) -> Tensor:
        gqa = q_BHQD.shape[1] != k_BGQD.shape[1]
        return scaled_dot_product_attention(
            q_BHQD, k_BGQD, v_BGQD, attn_mask=self.mask_B1QL, scale=scale, enable_gqa=gqa
        )


@dataclass(frozen=True)
class Paged:
    """Rows continue cached sequences: new keys and values go to `slots`, attention reads `context`."""

    keys: list[Tensor]  # per layer: [slots, G, D]
    values: list[Tensor]
    slots_BQ: Tensor  # where each new token's key and value are written; padding goes to slot 0
    context_BL: Tensor  # the slots of each row's sequence, in order
    mask_B1QL: Tensor

    def attend(self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float) -> Tensor:
        keys, values = self.keys[layer], self.values[layer]
        keys[self.slots_BQ] = k_BGQD.transpose(1, 2)
        values[self.slots_BQ] = v_BGQD.transpose(1, 2)
        k = keys[self.context_BL].transpose(1, 2)
        v = values[self.context_BL].transpose(1, 2)
        gqa = q_BHQD.shape[1] != k.shape[1]
        return scaled_dot_product_attention(q_BHQD, k, v, attn_mask=self.mask_B1QL, scale=scale, enable_gqa=gqa)


_current = threading.local()


@contextmanager
def using(layout: Layout) -> Iterator[None]:
    """Run a model forward pass under `layout` (per thread: the engine owns a worker thread)."""
    before = getattr(_current, "layout", None)
    _current.layout = layout
    try:
        yield
    finally:
        _current.layout = before


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    for feature in ("softcap", "s_aux", "sliding_window"):
        if kwargs.get(feature) is not None:
            raise ModelError(
                f"{type(module).__name__} uses '{feature}' in attention, which Interplay does not support yet."
            )
    layout: Layout | None = getattr(_current, "layout", None)
    if layout is None:
        layout = Causal()
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    out = layout.attend(int(module.layer_idx), query, key, value, scale)  # type: ignore[arg-type]
    return out.transpose(1, 2), None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The layout knows who sees whom; transformers must not build a mask of its own."""
    return None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)

"""Our attention function. It is registered with transformers, so that Hugging Face models run unchanged.

The current `Layout` decides which tokens a token attends to. It is set with `using(layout)` around the model's forward
pass: `Causal` and `Masked` for the learner on a CPU (its GPU layout is in `training/spans.py`), and `Packed` for the
engine. In a layer with a sliding window, a token sees that many tokens, including itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from interplay.errors import ModelError

NAME = "interplay"
EYE = "interplay_flash_windows"  # transformers passes the windows only to functions with "flash" in their name
# Shapes: B rows, Q new tokens per row, L attended tokens, H query heads, G key-value heads, D head size.


class Layout(Protocol):
    def attend(
        self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float, window: int | None
    ) -> Tensor: ...


def _sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    gqa = q.shape[1] != k.shape[1]
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=gqa)


@dataclass(frozen=True)
class Causal:
    """Each row is one right-padded sequence. Padding comes last, so the causal mask alone hides it."""

    def attend(
        self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        mask = None
        if window is not None and window < q_BHQD.shape[2]:
            at = torch.arange(q_BHQD.shape[2], device=q_BHQD.device)
            apart = at.unsqueeze(1) - at
            mask = (apart >= 0) & (apart < window)
        return _sdpa(q_BHQD, k_BGQD, v_BGQD, mask, scale)


@dataclass(frozen=True)
class Masked:
    """Each row holds one prompt and several continuations of it; `mask[b, 0, q, l]` is true if token q sees token l."""

    mask_B1QL: Tensor
    positions_BQ: Tensor

    def attend(
        self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        mask = self.mask_B1QL
        if window is not None:
            at = self.positions_BQ
            mask = mask & (at.unsqueeze(2) - at.unsqueeze(1) < window).unsqueeze(1)
        return _sdpa(q_BHQD, k_BGQD, v_BGQD, mask, scale)


@dataclass(frozen=True)
class Packed:
    """One row with the tokens of many sequences, for the engine. `attend_to(layer, queries [T, H, D], scale, window)`
    reads the paged cache, after the new keys and values were written to it."""

    keys: list[Tensor]
    values: list[Tensor]
    slots_T: Tensor
    attend_to: Callable[[int, Tensor, float, int], Tensor]

    def attend(
        self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        self.keys[layer][self.slots_T] = k_BGQD[0].transpose(0, 1)
        self.values[layer][self.slots_T] = v_BGQD[0].transpose(0, 1)
        out = self.attend_to(layer, q_BHQD[0].transpose(0, 1).contiguous(), scale, window or 1 << 30)
        return out.transpose(0, 1).unsqueeze(0)


_current = threading.local()


@contextmanager
def using(layout: Layout) -> Iterator[None]:
    """Run a model's forward pass with `layout`. It is set per thread, because the engine has a worker thread."""
    before = getattr(_current, "layout", None)
    _current.layout = layout
    try:
        yield
    finally:
        _current.layout = before


def _attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    for feature in ("softcap", "s_aux"):
        if kwargs.get(feature) is not None:
            raise ModelError(
                f"{type(module).__name__} uses '{feature}' in attention, which Interplay does not support; expected a "
                "model without it, such as Llama or Qwen."
            )
    layout: Layout | None = getattr(_current, "layout", None)
    if layout is None:
        layout = Causal()
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    out = layout.attend(int(module.layer_idx), query, key, value, scale, kwargs.get("sliding_window"))  # type: ignore[arg-type]
    return out.transpose(1, 2), None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Keeps transformers from building a mask: the layout decides what each token sees."""
    return None


def _windows(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
    """The attention of Qwen's vision encoder: a token sees the tokens of its own window or picture. Windows of the same
    length are computed together. With torch's function, transformers would make a call for every window of every
    picture."""
    ends = kwargs["cu_seq_lens_q"].tolist()
    by_length: dict[int, list[int]] = {}
    for start, end in pairwise(ends):
        by_length.setdefault(end - start, []).append(start)
    out = torch.empty_like(query)
    for length, starts in by_length.items():
        at = torch.tensor(starts, device=query.device).unsqueeze(1) + torch.arange(length, device=query.device)
        q, k, v = (x[0][:, at].transpose(0, 1) for x in (query, key, value))  # [windows, heads, length, size]
        found = scaled_dot_product_attention(q, k, v, scale=kwargs["scaling"])
        out[0].index_copy_(1, at.flatten(), found.transpose(0, 1).flatten(1, 2))
    return out.transpose(1, 2), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)
AttentionInterface.register(EYE, _windows)
AttentionMaskInterface.register(EYE, _no_mask)

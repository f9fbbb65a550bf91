"""Our attention function, registered with transformers, so that Hugging Face models run as they are.

What a row of the batch attends to is decided by the `Layout` in force, set with `using(layout)` around the
model's forward pass: `Causal`, `Masked` and `Varlen` rows for the learner, `Packed` tokens for the engine.
A layer with a sliding window sees that many tokens back, itself included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from interplay.errors import ModelError

NAME = "interplay"
_BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
_LONG, _WIDTH, _WASTE = 1024, 256, 1.3  # when packed sequences are attended to as rows
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
    """Each row is one right-padded sequence: padding comes last, so causality alone hides it."""

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
    """Rows that hold one prompt and several continuations of it; `mask[b, 0, q, l]` says who sees whom."""

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
    """One row of tokens of many sequences, for the engine: `attend_to(layer, queries [T, H, D], scale, window)` reads
    the paged cache, which holds the new keys by then."""

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


@dataclass(frozen=True)
class Spans:
    """Whole sequences laid end to end, for the learner on a GPU; `bounds` are where they begin, and the end."""

    bounds: Tensor
    lengths: tuple[int, ...]

    @property
    def longest(self) -> int:
        return max(self.lengths)

    @property
    def width(self) -> int:
        """Of rows that could hold one sequence each. Long ones have few widths, since kernels are planned for each."""
        step = _WIDTH if self.longest >= _LONG else 16
        return -(-self.longest // step) * step

    @property
    def alike(self) -> bool:
        """Long sequences of like length: as padded rows they are little more work, and cuDNN's kernel for rows takes
        two thirds of the time of flash attention's for packed tokens (H200, 4 × 4,096 tokens)."""
        work = len(self.lengths) * self.width**2
        return self.longest >= _LONG and work <= _WASTE * sum(n * n for n in self.lengths)

    @cached_property
    def places(self) -> Tensor | None:
        """Where each token stands in those rows; None where nothing is padded."""
        if all(n == self.width for n in self.lengths):
            return None
        at = torch.arange(int(sum(self.lengths)), device=self.bounds.device)
        lengths = torch.tensor(self.lengths, device=self.bounds.device)
        row = torch.repeat_interleave(torch.arange(len(self.lengths), device=at.device), lengths, output_size=len(at))
        return at + row * self.width - self.bounds.to(at.dtype)[row]


@dataclass(frozen=True)
class Varlen:
    """One row of sequences laid end to end."""

    spans: Spans

    def attend(
        self, layer: int, q_BHQD: Tensor, k_BGQD: Tensor, v_BGQD: Tensor, scale: float, window: int | None
    ) -> Tensor:
        q, k, v = (x[0].transpose(0, 1) for x in (q_BHQD, k_BGQD, v_BGQD))
        return varlen(q, k, v, self.spans, scale, window or 1 << 30).transpose(0, 1).unsqueeze(0)


def varlen(q_THD: Tensor, k_TGD: Tensor, v_TGD: Tensor, spans: Spans, scale: float, window: int) -> Tensor:
    """Causal attention within each of the sequences: the fastest kernel there is for this dtype."""
    D, longest = q_THD.shape[-1], spans.longest
    half = q_THD.dtype in (torch.bfloat16, torch.float16)
    if q_THD.is_cuda and window >= longest and (spans.alike or not half):  # no kernel packs fp32
        return as_rows(q_THD, k_TGD, v_TGD, spans, scale)
    if q_THD.is_cuda and half:
        from torch.nn.attention.varlen import varlen_attn

        if scale != D**-0.5:
            q_THD = q_THD * (scale * D**0.5)
        options: dict[str, Any] = {"window_size": (-1 if window >= longest else window - 1, 0)}
        if (
            "enable_gqa" in signature(varlen_attn).parameters
        ):  # torch 2.11 takes fewer key-value heads without being told
            options["enable_gqa"] = True
        bounds = spans.bounds
        mixed: Any = varlen_attn(q_THD, k_TGD, v_TGD, bounds, bounds, longest, longest, **options)
        return mixed
    out = []
    for q, k, v in zip(*(x.split(spans.lengths) for x in (q_THD, k_TGD, v_TGD)), strict=True):
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        out.append(Causal().attend(0, q, k, v, scale, window)[0].transpose(0, 1))
    return torch.cat(out)


def as_rows(q_THD: Tensor, k_TGD: Tensor, v_TGD: Tensor, spans: Spans, scale: float) -> Tensor:
    """The same, one padded row per sequence: padding comes last, so causality hides it."""
    shape = (len(spans.lengths), spans.width)
    places = spans.places

    def row(x: Tensor) -> Tensor:
        if places is not None:
            x = x.new_zeros((shape[0] * shape[1], *x.shape[1:])).index_copy(0, places, x)
        return x.unflatten(0, shape).transpose(1, 2)

    with sdpa_kernel(_BACKENDS, set_priority=True):
        mixed = _sdpa(row(q_THD), row(k_TGD), row(v_TGD), None, scale).transpose(1, 2).flatten(0, 1)
    return mixed if places is None else mixed.index_select(0, places)


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
    for feature in ("softcap", "s_aux"):
        if kwargs.get(feature) is not None:
            raise ModelError(
                f"{type(module).__name__} uses '{feature}' in attention, which Interplay does not support yet."
            )
    layout: Layout | None = getattr(_current, "layout", None)
    if layout is None:
        layout = Causal()
    scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
    out = layout.attend(int(module.layer_idx), query, key, value, scale, kwargs.get("sliding_window"))  # type: ignore[arg-type]
    return out.transpose(1, 2), None


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The layout knows who sees whom; transformers must not build a mask of its own."""
    return None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _no_mask)

"""Many LoRA adapters on one base, in one forward pass.

The adapters of a base are stacked along their ranks: rank rows [o, o + r) of every layer belong to one adapter. For
each row of the batch, the products of its own adapter are kept and all others are set to zero. So adapters may have
different ranks, one batch may hold tokens of several adapters and of the base alone, and an adapter is replaced by
writing to its rank rows.

A hook on each layer adds the output of the current `Mix`, which `mixing` sets per thread. The module tree does not
change, so all Hugging Face formats keep working.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from interplay.errors import EngineError
from interplay.models.adapter import Adapter, sizes
from interplay.models.shape import decoder_of

# R is the total number of rank rows of all adapters; K and N are a layer's input and output sizes.


class Source(Protocol):
    """A source of stacked weights: the engine's buffers (`Bank`) or the learner's tensors (`Stacked`)."""

    def pair(self, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        """(down [R, K], up [R, N]) of a layer; None if no adapter has weights for it."""
        ...


@dataclass(frozen=True)
class Mix:
    """The adapters of the tokens in a batch. `keep` [..., R] broadcasts over the tokens: it is the scale of the token's
    adapter on that adapter's ranks, and 0 elsewhere."""

    source: Source
    keep: Tensor


_current = threading.local()


@contextmanager
def mixing(mix: Mix | None) -> Iterator[None]:
    before = getattr(_current, "mix", None)
    _current.mix = mix
    try:
        yield
    finally:
        _current.mix = before


def _hook(layer: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
    mix: Mix | None = getattr(_current, "mix", None)
    pair = mix.source.pair(layer) if mix is not None else None
    if mix is None or pair is None:
        return out
    down, up = (t.to(out.dtype) for t in pair)
    return out + (nn.functional.linear(args[0], down) * mix.keep.to(out.dtype)) @ up


def layers(model: Any) -> dict[str, nn.Module]:
    """The layers that can take an adapter, by name: all linear layers except the output layer and those of an eye or
    ear. The first call also registers the hooks."""
    head, decoder = model.get_output_embeddings(), decoder_of(model)
    inside = set(decoder.modules()) if decoder is not model.base_model else None
    out = {}
    for name, layer in model.named_modules():
        if layer is head or isinstance(layer, nn.Embedding) or (inside is not None and layer not in inside):
            continue
        if isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D":
            out[name] = layer
            if not getattr(layer, "_interplay_hooked", False):
                layer.register_forward_hook(_hook)
                layer._interplay_hooked = True
    return out


class Bank:
    """The engine's stacked adapters of one model. For each rank row, `owner` is the index of its adapter and `scales`
    that adapter's scale."""

    def __init__(self, model: nn.Module, capacity: int) -> None:
        self.layers = layers(model)
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype
        self.places: dict[str, range] = {}
        self.indices: dict[str, int] = {}
        self.capacity = 0
        self._pairs: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self.owner = torch.empty(0, dtype=torch.int32, device=self.device)
        self.scales = torch.empty(0, dtype=torch.float32, device=self.device)
        self._grow(capacity)

    def _grow(self, capacity: int) -> None:
        """Make new buffers with room for `capacity` ranks; loaded adapters are copied to them."""
        old = self.capacity
        owner = torch.full((capacity,), -2, dtype=torch.int32, device=self.device)
        scales = torch.zeros(capacity, dtype=torch.float32, device=self.device)
        owner[:old], scales[:old] = self.owner, self.scales
        self.owner, self.scales, self.capacity = owner, scales, capacity
        for layer in self.layers.values():
            k, n = sizes(layer)
            pair = (self._new(capacity, k), self._new(capacity, n))
            if layer in self._pairs:
                for bigger, before in zip(pair, self._pairs[layer], strict=True):
                    bigger[:old] = before
            self._pairs[layer] = pair

    def _new(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def pair(self, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        return self._pairs.get(layer)

    def load(self, name: str, adapter: Adapter) -> bool:
        """Write an adapter to its rank rows. Returns True if the buffers had to grow, and so moved in memory."""
        unknown = [n for n in adapter.weights if n not in self.layers]
        if unknown:
            raise EngineError(
                f"adapter '{name}' has weights for '{unknown[0]}', a layer that this model does not have; expected an "
                "adapter that was trained on this base."
            )
        for layer_name, (down, up) in adapter.weights.items():
            k, n = sizes(self.layers[layer_name])
            if tuple(down.shape) != (adapter.rank, k) or tuple(up.shape) != (n, adapter.rank):
                raise EngineError(
                    f"adapter '{name}' has weights of shape {tuple(down.shape)} and {tuple(up.shape)} for "
                    f"'{layer_name}'; expected {(adapter.rank, k)} and {(n, adapter.rank)}."
                )
        grown = False
        if name in self.places and len(self.places[name]) != adapter.rank:
            self.unload(name)
        if name not in self.places:
            place = self._find(adapter.rank)
            if place is None:
                self._grow(self.capacity + adapter.rank)
                grown, place = True, self._find(adapter.rank)
            assert place is not None
            self.places[name] = place
            self.indices[name] = next(i for i in range(len(self.indices) + 1) if i not in self.indices.values())
        place = self.places[name]
        rows = slice(place.start, place.stop)
        with torch.no_grad():
            for layer_name, layer in self.layers.items():
                down, up = self._pairs[layer]
                if layer_name in adapter.weights:
                    new_down, new_up = adapter.weights[layer_name]
                    down[rows].copy_(new_down)
                    up[rows].copy_(new_up.t())
                else:
                    down[rows].zero_()
                    up[rows].zero_()
            self.owner[rows] = self.indices[name]
            self.scales[rows] = adapter.scale
        return grown

    def unload(self, name: str) -> None:
        place = self.places.pop(name)
        del self.indices[name]
        self.owner[place.start : place.stop] = -2

    def _find(self, rank: int) -> range | None:
        """The first free range of `rank` rows; None if no range is free."""
        start = 0
        for place in sorted(self.places.values(), key=lambda p: p.start):
            if place.start - start >= rank:
                break
            start = place.stop
        return range(start, start + rank) if start + rank <= self.capacity else None

    def index(self, name: str | None) -> int:
        return -1 if name is None else self.indices[name]

    def keep(self, indices: Tensor) -> Tensor:
        """The `keep` [..., R] of a `Mix` for rows with these adapter indices (-1: no adapter)."""
        return torch.where(indices.unsqueeze(-1) == self.owner, self.scales, 0.0)


class Stacked:
    """The tensors of several adapters for the learner, joined along their ranks and across layers that share an input.

    A joined tensor is a separate autograd leaf. It is made once for all micro-batches of an optimiser step; `collect`
    then adds each adapter's part of its gradients to the adapter's own tensors."""

    def __init__(self, model: Any, parts: Sequence[Adapter]) -> None:
        self._names = {layer: name for name, layer in layers(model).items()}
        self._parts = parts
        self._joined: dict[tuple[nn.Module, ...], tuple[Tensor, Tensor] | None] = {}
        self._rounded: dict[tuple[nn.Module, ...], tuple[Tensor, Tensor]] = {}
        self.device = next(model.parameters()).device
        ranks = torch.tensor([a.rank for a in parts], device=self.device)
        self.owner = torch.arange(len(parts), device=self.device).repeat_interleave(ranks)
        self.scales = torch.tensor([a.scale for a in parts], device=self.device).repeat_interleave(ranks)

    def pair(self, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        return self.joined((layer,))

    def joined(self, together: tuple[nn.Module, ...]) -> tuple[Tensor, Tensor] | None:
        """(down [layers · R, K], up [layers · R, N of all layers]) of layers whose outputs are side by side; None if no
        adapter has weights for any of them."""
        if together not in self._joined:
            self._joined[together] = self._join(together)
        return self._joined[together]

    def rounded(self, together: tuple[nn.Module, ...], kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """`joined` in the precision of the model and without gradients, with `up` transposed."""
        if together not in self._rounded:
            pair = self.joined(together)
            assert pair is not None
            down, up = (t.detach().to(kind) for t in pair)
            self._rounded[together] = down, up.t().contiguous()
        return self._rounded[together]

    @torch.no_grad()
    def _join(self, together: tuple[nn.Module, ...]) -> tuple[Tensor, Tensor] | None:
        if not any(self._names.get(m) in a.weights for m in together for a in self._parts):
            return None
        rows, width = len(self.owner) * len(together), sum(sizes(m)[1] for m in together)
        places = list(self._places(together))
        if len(places) == len(together) * len(self._parts):  # few large copies take the host less time than many
            down = torch.cat([pair[0].float() for pair, _, _ in places])
            if len(together) == 1:
                up = torch.cat([pair[1].float() for pair, _, _ in places], 1).t().contiguous()
                places = []
            else:
                up = torch.zeros((rows, width), device=self.device)
        else:
            down = torch.zeros((rows, sizes(together[0])[0]), device=self.device)
            up = torch.zeros((rows, width), device=self.device)
            for pair, place, _ in places:
                down[place] = pair[0].float()
        for pair, place, columns in places:
            up[place, columns] = pair[1].float().t()
        trained = any(t.requires_grad for a in self._parts for pair in a.weights.values() for t in pair)
        return down.requires_grad_(trained), up.requires_grad_(trained)

    def _places(self, together: tuple[nn.Module, ...]) -> Iterator[tuple[tuple[Tensor, Tensor], slice, slice]]:
        """Each adapter's tensors for each of the layers, with their rows and the columns of the layer's output."""
        row = column = 0
        for module in together:
            n = sizes(module)[1]
            for adapter in self._parts:
                found = adapter.weights.get(self._names.get(module, ""))
                if found is not None:
                    yield found, slice(row, row + adapter.rank), slice(column, column + n)
                row += adapter.rank
            column += n

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of all joined tensors to those of the adapters' tensors."""
        for together, pair in self._joined.items():
            if pair is None or pair[0].grad is None or pair[1].grad is None:
                continue
            for (down, up), place, columns in self._places(together):
                for tensor, grad in ((down, pair[0].grad[place]), (up, pair[1].grad[place, columns].t())):
                    if not tensor.requires_grad:
                        continue
                    if tensor.grad is None:
                        tensor.grad = grad.to(tensor.dtype).contiguous()
                    else:
                        tensor.grad += grad
            pair[0].grad = pair[1].grad = None

    def keep(self, indices: Tensor) -> Tensor:
        """The `keep` [..., R] of a `Mix` for rows with these adapter indices (-1: no adapter)."""
        return torch.where(indices.unsqueeze(-1) == self.owner, self.scales, 0.0)

"""One LoRA adapter in memory: the weights that are added to the layers of a base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Adapter:
    """LoRA weights by layer name: (down [rank, in], up [out, rank]). A layer computes y += scale · up · down · x."""

    rank: int
    scale: float
    weights: Mapping[str, tuple[Tensor, Tensor]] = field(repr=False)

    def detached(self) -> Adapter:
        """A copy on the host that is not trained."""
        weights = {
            n: (down.detach().cpu().clone(), up.detach().cpu().clone()) for n, (down, up) in self.weights.items()
        }
        return Adapter(self.rank, self.scale, weights)

    @torch.no_grad()
    def overwrite(self, source: Adapter) -> None:
        """Copy the weights of `source`, which has the same shape."""
        for name, pair in self.weights.items():
            for mine, new in zip(pair, source.weights[name], strict=True):
                mine.copy_(new)


def sizes(layer: Any) -> tuple[int, int]:
    """The (input, output) size of a layer. GPT-2's Conv1D stores its matrix transposed."""
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)

"""One LoRA adapter in memory: the weights that are added to the layers of a base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Adapter:
    """LoRA weights by layer name: (down [rank, in], up [out, rank]). A layer computes y += scale · up · down · x."""

    rank: int
    scale: float
    weights: Mapping[str, tuple[Tensor, Tensor]] = field(repr=False)


def sizes(layer: Any) -> tuple[int, int]:
    """The (input, output) size of a layer. GPT-2's Conv1D stores its matrix transposed."""
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)

"""The sizes of a model, for the estimate of a run's memory.

The model is built on torch's `meta` device, which has shapes but no data. Parameters are counted exactly, and the
memory that a forward pass keeps for its backward pass is measured by running one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from interplay.config import AdapterSection
from interplay.models.adapter import sizes
from interplay.models.load import blank, read_config
from interplay.models.senses import encoder_bytes
from interplay.models.shape import cache_shape
from interplay.models.stacked import layers
from interplay.training.activations import saved_bytes

_TOKENS = 64  # in the forward pass that is measured


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model."""

    tensors: tuple[int, ...]  # number of parameters of each
    trunk: tuple[int, ...]  # the same without an output layer that has weights of its own
    activations: int  # bytes per token kept for the backward pass
    layer_input: int  # bytes per token and layer kept with train.recompute
    layers: int
    vocabulary: int
    cache: int  # bytes per token in the key-value cache
    context: int  # longest sequence in tokens
    adapters: tuple[tuple[str, int, int], ...]  # name, input and output size of layers that can have one
    encoder: int  # bytes for its vision or audio encoder on a GPU, besides its weights; 0 for a text model

    @property
    def count(self) -> int:
        return sum(self.tensors)

    def adapter(self, section: AdapterSection) -> tuple[int, ...]:
        taken = [(k, n) for name, k, n in self.adapters if not section.targets or name.endswith(tuple(section.targets))]
        return tuple(size for k, n in taken for size in (section.rank * k, n * section.rank))


@lru_cache(maxsize=32)
def shape_of(base: str, seed: int, dtype: torch.dtype) -> ModelShape:
    config = read_config(base, seed)
    with torch.device("meta"):
        model = blank(base, config, dtype)
    text = config.get_text_config()
    depth, heads, size = cache_shape(model)
    return ModelShape(
        tuple(p.numel() for p in model.parameters()),
        tuple(p.numel() for p in model.base_model.parameters()),
        saved_bytes(model, _TOKENS) // _TOKENS,
        text.hidden_size * dtype.itemsize,
        text.num_hidden_layers,
        model.get_input_embeddings().weight.shape[0],
        2 * depth * heads * size * dtype.itemsize,
        int(text.max_position_embeddings),
        tuple((name, *sizes(layer)) for name, layer in layers(model).items()),
        encoder_bytes(model),
    )

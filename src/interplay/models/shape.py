"""The parts and sizes of a model that engine and learner rely on."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel


def decoder_of(model: PreTrainedModel) -> nn.Module:
    """The language model without its output layer. In models that see or hear, it is a part of the base model."""
    core: Any = model.base_model
    for name in ("language_model", "text_model"):
        part = getattr(core, name, None)
        if isinstance(part, nn.Module):
            return part
    found: nn.Module = core
    return found


def cache_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """(layers, key-value heads, head size) of the cache."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, heads, size

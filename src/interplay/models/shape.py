"""The sizes of a model that determine its key-value cache."""

from __future__ import annotations

from transformers import PreTrainedModel


def cache_shape(model: PreTrainedModel) -> tuple[int, int, int]:
    """(layers, key-value heads, head size) of the cache."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, heads, size

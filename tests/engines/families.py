"""Tiny random models of every supported family, small enough for a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from interplay.models.attention import NAME

WORDS = 96
COMMON: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(num_key_value_heads=1, head_dim=16, **COMMON),
    "qwen2": lambda: Qwen2Config(num_key_value_heads=2, head_dim=16, **COMMON),
    "qwen3": lambda: Qwen3Config(num_key_value_heads=2, head_dim=16, **COMMON),
    "smollm": lambda: LlamaConfig(
        num_key_value_heads=2, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        **(COMMON | {"tie_word_embeddings": True}),
    ),
    "mistral": lambda: MistralConfig(num_key_value_heads=2, head_dim=16, sliding_window=7, **COMMON),
    "gemma3": lambda: Gemma3TextConfig(
        num_key_value_heads=2, head_dim=16, sliding_window=6, query_pre_attn_scalar=16,
        layer_types=["sliding_attention", "full_attention"],
        **(COMMON | {"tie_word_embeddings": True}),
    ),
    "phi3": lambda: Phi3Config(num_key_value_heads=2, sliding_window=9, **COMMON),
    "gpt2": lambda: GPT2Config(
        vocab_size=WORDS, n_positions=256, n_embd=32, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=1,
    ),
}  # fmt: skip


def make(family: str, attention: str = NAME, layers: int = 2) -> PreTrainedModel:
    """A model of the family with random weights, including biases and norms, so that leaving one out is noticed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = FAMILIES[family]()
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    return model.float().eval()

"""Saves a model as an ordinary Hugging Face folder that transformers can load."""

from __future__ import annotations

from pathlib import Path

from interplay.models.load import Loaded


def save(loaded: Loaded, folder: Path) -> None:
    """The saved configuration names an attention that transformers knows. An engine on another thread must not compute
    meanwhile."""
    config = loaded.model.config
    parts = [config, *(p for name in config.sub_configs if (p := getattr(config, name, None)) is not None)]
    implementations = [part._attn_implementation for part in parts]
    config._attn_implementation = "sdpa"
    try:
        loaded.model.save_pretrained(folder)
    finally:
        for part, implementation in zip(parts, implementations, strict=True):
            part._attn_implementation = implementation
    loaded.tokenizer.save_pretrained(folder)
    if loaded.senses is not None:
        from interplay.models.processors import save_processor

        save_processor(loaded.senses.processor, folder)

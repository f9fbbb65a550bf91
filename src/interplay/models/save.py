"""Saves a model as an ordinary Hugging Face folder that transformers can load."""

from __future__ import annotations

from pathlib import Path

from interplay.models.load import Loaded


def save(loaded: Loaded, folder: Path) -> None:
    implementation = loaded.model.config._attn_implementation
    loaded.model.config._attn_implementation = "sdpa"
    try:
        loaded.model.save_pretrained(folder)
    finally:
        loaded.model.config._attn_implementation = implementation
    loaded.tokenizer.save_pretrained(folder)

"""The device and the precision of a recipe's models."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from interplay.config import Recipe
from interplay.errors import ConfigError


def device_of(recipe: Recipe) -> str:
    """The device of this machine on which the recipe's models are."""
    device = wanted_device(recipe)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but this machine has no CUDA device; expected 'cpu' or 'auto'.")
    return device


def limit_memory(recipe: Recipe, device: str) -> None:
    """Let this process take no more of the GPU's memory than `memory.share`, so that other runs can use the rest. Also
    set the peak of its memory to zero, because this process may have done another run before."""
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(recipe.memory.share)
        torch.cuda.reset_peak_memory_stats()


def wanted_device(recipe: Recipe) -> str:
    """The device that the recipe asks for. A plan for another machine may ask for one that this machine lacks."""
    return recipe.device if recipe.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")


def host_bytes() -> int:
    """All memory of the machine or container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")  # the limit of a container
    if limit.is_file() and (text := limit.read_text().strip()).isdecimal():
        total = min(total, int(text))
    return total


def dtype_of(recipe: Recipe, device: str) -> torch.dtype:
    if recipe.dtype == "auto":
        return torch.bfloat16 if device == "cuda" else torch.float32
    return torch.bfloat16 if recipe.dtype == "bfloat16" else torch.float32

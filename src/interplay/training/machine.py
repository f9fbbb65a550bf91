"""The memory of the machine: how much there is, how much was used, and sizes as people read them."""

from __future__ import annotations

import sys

import torch

from interplay.models.device import host_bytes

GiB = 1 << 30


def peak_bytes() -> int:
    """The most memory that was used at once so far: of the GPU if there is one, else of this process. 0 if the system
    does not report it."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:  # Windows has none
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def available_bytes(device: str) -> int | None:
    """All memory of the GPU, or of the machine or container. None if there is no such GPU."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[1]) if torch.cuda.is_available() else None
    return host_bytes()


def size_text(count: int) -> str:
    """A number of bytes for people."""
    if count >= GiB:
        return f"{count / GiB:.0f} GiB" if count >= 10 * GiB else f"{count / GiB:.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.0f} KiB"

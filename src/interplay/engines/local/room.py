"""Decides how large the key-value cache of an engine on a GPU is: as large as the run can use and as memory allows.
Also allocates the memory of a cache."""

from __future__ import annotations

import gc
import math
import mmap
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.engines.engine import GPU_CACHE_SHARE, MAX_RUNNING
from interplay.models.shape import cache_shape

_PARTIAL = 32  # tokens of the two blocks that may not be full: the last of a prompt and the last of its reply


@dataclass(frozen=True, slots=True)
class CacheRoom:
    """`requests` sequences of at most `tokens` each (prompt plus reply; None: the model's context) can be in use at the
    same time. The run may take `share` of the GPU's memory, and its learners will need `reserve` bytes of it."""

    share: float = 1.0
    requests: int = MAX_RUNNING
    tokens: int | None = None
    reserve: int = 0

    def size(self, free: int, token_bytes: int, context: int) -> tuple[int, str]:
        """The number of tokens in the cache, and the reason in words. `free` bytes are left for this run. The cache
        takes at most a quarter of them, and leaves `reserve` bytes to the learners. It takes more only if the longest
        request would not fit otherwise."""
        longest = min(context, self.tokens or context)
        least = context + _PARTIAL
        enough = max(self.requests * (longest + _PARTIAL), least)
        quarter, left = int(GPU_CACHE_SHARE * max(0, free)) // token_bytes, (free - self.reserve) // token_bytes
        most = max(min(quarter, left), min(least, free // token_bytes))
        if most <= 0:
            return 0, ""
        use = f"{self.requests:,} requests of up to {longest:,} tokens"
        if enough <= most:
            return enough, f"for {use}"
        why = f"{GPU_CACHE_SHARE:.0%} of what is free" if most == quarter else "what the learners leave"
        if most == least:
            why = "enough for the longest request"
        return most, f"{why}; {use} could use {enough / most:.1f} times as much"


def free_bytes(device: torch.device, share: float) -> int:
    """The bytes of a GPU that this run may still take: at most what is free, and at most what is left of its share.
    Memory that torch keeps for later, and models of a run that has ended, are freed first."""
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return int(min(free, share * total - torch.cuda.memory_reserved(device)))


def gpu_cache_tokens(model: PreTrainedModel, room: CacheRoom) -> int:
    """The tokens of a cache for this model on its GPU."""
    layers, heads, size = cache_shape(model)
    context = int(model.config.get_text_config().max_position_embeddings)
    free = free_bytes(model.device, room.share)
    return room.size(free, 2 * layers * heads * size * model.dtype.itemsize, context)[0]


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """`torch.zeros`, but on a CPU the system provides a page of memory only when it is first used. A short run uses
    little of its cache, and need not wait until zeros are written to all of it."""
    if device.type != "cpu" or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    # Not calloc: it takes memory that this process has used and freed before, and writes zeros to all of it.
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)

"""Constants and helpers for launching the kernels."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.runtime import driver

PAGE = 16  # tokens per cache block
_OTHER = 16_384  # bytes of shared memory that a program needs besides what it reads ahead


def power(n: int) -> int:
    """The smallest power of two that is at least n; Triton's block sizes must be powers of two."""
    return 1 << (n - 1).bit_length()


def precision(t: Tensor) -> str:
    """The input precision of `tl.dot`: fp32 is not rounded to tf32. For bf16 the setting has no effect."""
    return "ieee" if t.dtype is torch.float32 else "tf32"


def stages(t: Tensor, size: int) -> int:
    """The `num_stages` of a loop that reads `size` bytes in each round: 3, which keeps two rounds in shared memory. If
    the GPU has too little shared memory for that, 2."""
    return 3 if not t.is_cuda or 2 * size + _OTHER <= _shared_memory(t.device.index) else 2


@cache
def _shared_memory(gpu: int) -> int:
    """The bytes of shared memory that a program may use."""
    return int(driver.active.utils.get_device_properties(gpu)["max_shared_mem"])

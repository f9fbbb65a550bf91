"""Constants and helpers for launching the kernels."""

from __future__ import annotations

import torch
from torch import Tensor

PAGE = 16  # tokens per cache block


def power(n: int) -> int:
    """The smallest power of two that is at least n; Triton's block sizes must be powers of two."""
    return 1 << (n - 1).bit_length()


def precision(t: Tensor) -> str:
    """The input precision of `tl.dot`: fp32 is not rounded to tf32. For bf16 the setting has no effect."""
    return "ieee" if t.dtype is torch.float32 else "tf32"

"""What every kernel is launched with."""

from __future__ import annotations

import torch
from torch import Tensor

PAGE = 16  # tokens per cache block


def power(n: int) -> int:
    """The next power of two: Triton's blocks are such."""
    return 1 << (n - 1).bit_length()


def precision(t: Tensor) -> str:
    """Of `tl.dot`: fp32 is not rounded to tf32; bf16 has no use for either."""
    return "ieee" if t.dtype is torch.float32 else "tf32"

"""Constants and helpers for launching the kernels."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

PAGE = 16  # tokens per cache block
FEW = 256  # the most rows of a step for which kernels of a few microseconds are worth their own settings


def power(n: int) -> int:
    """The smallest power of two that is at least n; Triton's block sizes must be powers of two."""
    return 1 << (n - 1).bit_length()


def precision(t: Tensor) -> str:
    """The input precision of `tl.dot`: fp32 is not rounded to tf32. For bf16 the setting has no effect."""
    return "ieee" if t.dtype is torch.float32 else "tf32"


@cache
def _is_hopper(device: torch.device) -> bool:
    """Whether it is an NVIDIA GPU of the Hopper generation or newer."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (9, 0)


def has_descriptors(t: Tensor) -> bool:
    """Whether kernels can load blocks of this tensor by a descriptor. The interpreter, on a CPU, can."""
    return not t.is_cuda or (t.dtype is not torch.float32 and _is_hopper(t.device))


def early(t: Tensor) -> dict[str, bool]:
    """Options of a kernel that calls `gdc_wait` before it reads what the kernel before it writes. The GPU may start it
    while that kernel still runs, which saves a microsecond for each kernel. It pays if kernels are short."""
    if t.is_cuda and t.shape[0] <= FEW and _is_hopper(t.device):
        return {"EARLY": True, "launch_pdl": True}
    return {"EARLY": False}

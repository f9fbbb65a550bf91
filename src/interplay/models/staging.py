"""Copies numbers to a device without waiting for what the device still does.

A copy from ordinary memory to a GPU waits until everything that was started before it has ended. Then the host cannot
start more work meanwhile, and the GPU is idle until the host has done so. A copy from pinned memory does not wait.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def staged(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on the host from which it can be copied to a device. Torch keeps pinned memory until the
    copies from it are made."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory() if device.type == "cuda" else tensor


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    return staged(array, device).to(device, non_blocking=True)

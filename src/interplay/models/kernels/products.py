"""Matrix products whose result is not rounded."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear


def wide_product(x_TK: Tensor, weight_NK: Tensor) -> Tensor:
    """x·Wᵀ in fp32, also if x and W are in bf16."""
    if x_TK.is_cuda and x_TK.dtype is not torch.float32:
        return torch.mm(x_TK, weight_NK.t(), out_dtype=torch.float32)
    return linear(x_TK.float(), weight_NK.float())

"""What the kernels of attention get beside tensors. The plain versions on a CPU get the same."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Rotary(NamedTuple):
    """How queries and keys of new tokens are rotated, and the slots of the cache for keys and values. `cos` and `sin`
    are tables as `turns` gives them. If the model has norms for queries and keys, these come before the rotation."""

    cos: Tensor
    sin: Tensor
    positions_T: Tensor
    slots_T: Tensor
    heads: int  # of the queries
    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    eps: float = 0.0


class Decoding(NamedTuple):
    """Rows with one new token each: the blocks of their sequences, and how many tokens each row attends to, including
    its new one. Rows of length 0 are padding."""

    table_BP: Tensor
    lengths_B: Tensor

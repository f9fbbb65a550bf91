"""The kernels of `kernels/` in plain torch, for a CPU in fp32. Names, meaning and shapes are the same, except that the
tables from `turns` have another form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from interplay.models.rotary import Rotary


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm in six small operations; torch's own needs eleven on a CPU."""
    scale = (x * x).mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (x * scale).mul_(weight)


def add_norm(x_TC: Tensor, residual_TC: Tensor | None, weight_C: Tensor, eps: float) -> Tensor:
    """RMSNorm of x or, with a residual, of x + residual; that sum is also stored in `residual`."""
    if residual_TC is not None:
        x_TC = residual_TC.add_(x_TC)
    return _norm(x_TC, weight_C, eps)


def turns(cos: Tensor, sin: Tensor, positions_T: Tensor) -> tuple[Tensor, Tensor]:
    """The rotation of each token, which all its heads share: cos for both halves of a head, and sin with the sign that
    each half needs."""
    c, s = cos.index_select(0, positions_T), sin.index_select(0, positions_T)
    return torch.cat((c, c), 1).unsqueeze(1), torch.cat((-s, s), 1).unsqueeze(1)


def rope_store(qkv_TN: Tensor, keys: Tensor, values: Tensor, new: Rotary) -> Tensor:
    """Rotate queries and keys by their positions (after their norms, if the model has them), and store keys and values
    in their slots. Returns the queries [T, H, D]."""
    _, G, D = keys.shape
    heads_THD = qkv_TN.unflatten(1, (-1, D))
    plain = heads_THD[:, : new.heads + G]
    if new.q_norm is not None and new.k_norm is not None:
        q, k = plain.split((new.heads, G), dim=1)
        plain = torch.cat((_norm(q, new.q_norm, new.eps), _norm(k, new.k_norm, new.eps)), dim=1)
    turned = (plain * new.cos).addcmul_(plain.roll(D // 2, dims=2), new.sin)
    keys.index_copy_(0, new.slots_T, turned[:, new.heads :])
    values.index_copy_(0, new.slots_T, heads_THD[:, new.heads + G :])
    return turned[:, : new.heads]


def rotate_heads(qkv_TN: Tensor, cos_TF: Tensor, sin_TF: Tensor, heads: int) -> Tensor:
    """The queries and keys [T, 2, H, D] of rows that hold queries, keys and values of as many heads each, rotated by
    each token's own angles."""
    a, b = qkv_TN.unflatten(1, (3, heads, -1))[:, :2].chunk(2, 3)
    c, s = cos_TF[:, None, None], sin_TF[:, None, None]
    return torch.cat((a * c - b * s, b * c + a * s), 3)


def silu_mul(gate_up_TN: Tensor, size: int) -> Tensor:
    """silu(gate) · up, for rows that hold gate and up side by side."""
    return silu(gate_up_TN[:, :size]).mul_(gate_up_TN[:, size:])


def joined(x_TK: Tensor, layers: Any, gated: bool = False, parts: bool = False) -> Tensor:
    """The outputs [T, N] of layers side by side, or silu(gate) · up if `gated`; see `kernels.joined`."""
    bias = None if layers.bias is None else layers.bias[: layers.rows]
    out = linear(x_TK, layers.weight, bias)
    return silu_mul(out, layers.rows // 2) if gated else out


def adapted(x_TK: Tensor, block: Any, bank: Any, adapters_T: Tensor, gated: bool = False) -> Tensor:
    """The outputs of joined layers with the part of each token's own adapter; see `kernels.adapted`. Without `gated`,
    they are a part of a larger tensor, so their rows are farther apart."""
    y_TM, N = linear(x_TK, block.storage, block.bias), block.rows
    keep_TR = (adapters_T.unsqueeze(1) == bank.owner) * bank.scales
    low = y_TM[:, N:].unflatten(1, (len(block.starts), -1)) * keep_TR.unsqueeze(1)
    out = y_TM[:, :N].addmm_(low.flatten(1), block.up)
    return silu_mul(out, N // 2) if gated else out


def logits(hidden_TC: Tensor, weight_VC: Tensor) -> Tensor:
    return linear(hidden_TC, weight_VC)

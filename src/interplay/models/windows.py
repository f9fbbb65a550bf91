"""Attention in the eye of Qwen2-VL and Qwen2.5-VL: all windows of the same size are computed in one call.

In these eyes the patches of a picture attend to each other within windows. Transformers calls the attention once for
each window of each picture, unless the flash-attn package is installed. With pictures of 1,024 patches these are 16
calls for each picture and layer, which take longer on a GPU than the rest of the eye.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLVisionAttention
from transformers.models.qwen2_vl.modeling_qwen2_vl import VisionAttention, apply_rotary_pos_emb_vision


class _Together:
    """Replaces `forward` of the attention in transformers. S: patches, H: heads, D: numbers of a head."""

    num_heads: int
    scaling: float
    qkv: nn.Linear
    proj: nn.Linear

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        **kwargs: Any,
    ) -> Tensor:
        size = hidden_states.shape[0]
        q_SHD, k_SHD, v_SHD = self.qkv(hidden_states).view(size, 3, self.num_heads, -1).unbind(1)
        q_SHD, k_SHD = apply_rotary_pos_emb_vision(q_SHD, k_SHD, *position_embeddings)
        attended_SHD = _attend(q_SHD, k_SHD, v_SHD, cu_seqlens.tolist(), self.scaling)
        out: Tensor = self.proj(attended_SHD.reshape(size, -1))
        return out


class _Windows25(_Together, Qwen2_5_VLVisionAttention):
    pass


class _Windows2(_Together, VisionAttention):
    pass


def _attend(q_SHD: Tensor, k_SHD: Tensor, v_SHD: Tensor, bounds: list[int], scale: float) -> Tensor:
    """Attention within the windows that begin and end at `bounds`."""
    starts: dict[int, list[int]] = defaultdict(list)
    for start, end in pairwise(bounds):
        if end > start:
            starts[end - start].append(start)
    if len(starts) == 1:
        (length,) = starts
        return _windows(q_SHD, k_SHD, v_SHD, length, scale)
    out = torch.empty_like(v_SHD)
    for length, found in starts.items():
        at = torch.tensor(found, device=q_SHD.device)[:, None] + torch.arange(length, device=q_SHD.device)
        rows = at.flatten()
        out = out.index_copy(0, rows, _windows(q_SHD[rows], k_SHD[rows], v_SHD[rows], length, scale))
    return out


def _windows(q_SHD: Tensor, k_SHD: Tensor, v_SHD: Tensor, length: int, scale: float) -> Tensor:
    """Windows of one length, one after the other: every one is a row of a batch."""
    q, k, v = (t.unflatten(0, (-1, length)).transpose(1, 2) for t in (q_SHD, k_SHD, v_SHD))
    return scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).flatten(0, 1)


def together(eye: nn.Module) -> None:
    """Let the attention of this eye compute its windows together."""
    for part in eye.modules():
        if type(part) is Qwen2_5_VLVisionAttention:
            part.__class__ = _Windows25
        elif type(part) is VisionAttention:
            part.__class__ = _Windows2

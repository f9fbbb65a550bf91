"""Runs the vision encoder of Qwen2.5-VL without its modules, on the same weights, while it is not trained.

The code of transformers launches many small kernels for each layer: rotary positions in fp32, norms, additions, and the
gathering of windows. For Qwen2.5-VL-3B's shape these took more than a third of the time. Here they are a few kernels,
the same as those of the language model (`kernels/`, or `plain.py` on a CPU). Attention needs no gathering if all
windows of a batch have the same length.

The matrices of the feed-forward layers are copied: gate and up are joined, and their size (3,420) is filled with zeros
to a multiple of 8, because other sizes make matrix products slow. Zeros change no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, pad, scaled_dot_product_attention
from transformers import PreTrainedModel

from interplay.models import plain

_MULTIPLE = 8  # sizes of matrices that the GPU's matrix units read without a detour


@dataclass(frozen=True)
class _Pictures:
    """Where the patches of a batch of pictures are. The processor gives the four patches of a token one after another,
    and the tokens row by row. `order` sorts the tokens by window, and `places` are the row and column of each patch in
    that order. `windows` and `pictures` are numbers of patches; patches attend to those of their window or picture."""

    order: np.ndarray
    places: np.ndarray
    windows: tuple[int, ...]
    pictures: tuple[int, ...]


class Eye:
    def __init__(self, model: PreTrainedModel) -> None:
        core: Any = model.base_model
        self.vision: Any = core.visual
        self.device = model.device
        self.kernels: Any = plain
        if model.device.type == "cuda":
            from interplay.models import kernels  # needs Triton

            self.kernels = kernels
        config = self.vision.config
        self.heads, self.merge = config.num_heads, config.spatial_merge_size
        self.window = config.window_size // config.patch_size // self.merge  # tokens along a side of a window
        self.whole = frozenset(config.fullatt_block_indexes)  # layers in which all patches of a picture see each other
        self.size = _filled(config.intermediate_size)
        self._inner = [self._feed_forward(block.mlp) for block in self.vision.blocks]

    def _feed_forward(self, mlp: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Gate and up joined, their biases, and down."""
        more = self.size - mlp.gate_proj.weight.shape[0]
        joined = torch.cat([pad(m.weight, (0, 0, 0, more)) for m in (mlp.gate_proj, mlp.up_proj)])
        biases = torch.cat([pad(m.bias, (0, more)) for m in (mlp.gate_proj, mlp.up_proj)])
        return joined, biases, pad(mlp.down_proj.weight, (0, more))

    def features(self, pictures: Sequence[dict[str, Tensor]]) -> list[Tensor]:
        """The features [n, C] of each picture, from the processor's inputs."""
        grids = [(t, h, w) for picture in pictures for t, h, w in picture["image_grid_thw"].tolist()]
        patches = [picture["pixel_values"] for picture in pictures]
        # From pinned memory, the copy to the GPU runs beside the kernels of the batch before.
        shape = (sum(map(len, patches)), patches[0].shape[1])
        joined = torch.empty(shape, dtype=patches[0].dtype, pin_memory=self.device.type == "cuda")
        torch.cat(patches, out=joined)
        dtype = self.vision.patch_embed.proj.weight.dtype
        return self._encoded(joined.to(self.device, non_blocking=True).to(dtype), grids)

    def _encoded(self, pixels_PN: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        """`grids` says how many patches each picture has: in time (1), in height and in width."""
        vision, kernels = self.vision, self.kernels
        where = self._where(grids)
        order, places = (torch.from_numpy(a).to(self.device) for a in (where.order, where.places))
        angles = places.unsqueeze(-1).float() * vision.rotary_pos_emb.inv_freq.float()
        cos, sin = angles.flatten(1).cos(), angles.flatten(1).sin()  # [P, D / 2], in fp32
        unit = self.merge**2
        x = vision.patch_embed(pixels_PN).unflatten(0, (-1, unit))[order].flatten(0, 1)
        residual = x.float()
        blocks = list(vision.blocks)
        norms = [*(block.norm1 for block in blocks), vision.merger.ln_q]
        x = kernels.add_norm(x, None, norms[0].weight, norms[0].variance_epsilon)
        for index, (block, (gate_up, bias, down)) in enumerate(zip(blocks, self._inner, strict=True)):
            qkv = linear(x, block.attn.qkv.weight, block.attn.qkv.bias)
            lengths = where.pictures if index in self.whole else where.windows
            mixed = self._attend(kernels.rotate_heads(qkv, cos, sin, self.heads), qkv, lengths)
            x = linear(mixed, block.attn.proj.weight, block.attn.proj.bias)
            x = kernels.add_norm(x, residual, block.norm2.weight, block.norm2.variance_epsilon)
            inner = kernels.silu_mul(linear(x, gate_up, bias), self.size)
            x = linear(inner, down, block.mlp.down_proj.bias)
            after = norms[index + 1]
            x = kernels.add_norm(x, residual, after.weight, after.variance_epsilon)
        found = vision.merger.mlp(x.unflatten(0, (-1, unit)).flatten(1))
        return list(found[torch.argsort(order)].split([t * h * w // unit for t, h, w in grids]))

    def _attend(self, turned_P2HD: Tensor, qkv_PN: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """Attention of the patches of each window, or picture, among themselves. Those of the same length are computed
        together."""
        q, k = turned_P2HD.unbind(1)
        v = qkv_PN[:, 2 * q.shape[1] * q.shape[2] :].unflatten(1, q.shape[1:])
        if len(set(lengths)) == 1:
            return _among(q, k, v, lengths[0]).flatten(1)
        starts = np.cumsum((0, *lengths[:-1]))
        out = torch.empty_like(q)
        for length in sorted(set(lengths)):
            some = starts[np.asarray(lengths) == length]
            at = torch.from_numpy((some[:, None] + np.arange(length)).reshape(-1)).to(q.device)
            out[at] = _among(q[at], k[at], v[at], length)
        return out.flatten(1)

    def _where(self, grids: Sequence[tuple[int, int, int]]) -> _Pictures:
        order, places, windows, pictures = list[np.ndarray](), list[np.ndarray](), list[int](), list[int]()
        known = {grid: self._picture(*grid) for grid in set(grids)}
        unit = self.merge**2
        for grid in grids:
            one = known[grid]
            order.append(one.order + sum(pictures) // unit)
            places.append(one.places)
            windows += one.windows
            pictures += one.pictures
        return _Pictures(np.concatenate(order), np.concatenate(places), tuple(windows), tuple(pictures))

    def _picture(self, time: int, height: int, width: int) -> _Pictures:
        merge, side = self.merge, self.window
        tokens = np.arange(time * (height // merge) * (width // merge)).reshape(time, height // merge, width // merge)
        parts = [
            tokens[t, i : i + side, j : j + side].reshape(-1)
            for t in range(time)
            for i in range(0, tokens.shape[1], side)
            for j in range(0, tokens.shape[2], side)
        ]
        order = np.concatenate(parts)
        rows, columns = (a.reshape(-1, merge, width // merge, merge) for a in np.indices((height, width)))
        both = np.stack((rows, columns), -1).swapaxes(1, 2).reshape(-1, merge**2, 2)  # [token, patch, 2]
        places = np.tile(both, (time, 1, 1))[order].reshape(-1, 2)
        windows = tuple(len(part) * merge**2 for part in parts)
        return _Pictures(order, places, windows, (height * width,) * time)


def _among(q_PHD: Tensor, k_PHD: Tensor, v_PHD: Tensor, length: int) -> Tensor:
    q, k, v = (x.unflatten(0, (-1, length)).transpose(1, 2) for x in (q_PHD, k_PHD, v_PHD))
    return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(0, 1)


def _filled(size: int) -> int:
    """The size of the feed-forward layers with the zeros."""
    return -(-size // _MULTIPLE) * _MULTIPLE


def suits(model: PreTrainedModel) -> bool:
    """Whether a model has such an encoder, in a precision that the kernels compute in."""
    if model.config.model_type != "qwen2_5_vl" or model.config.vision_config.hidden_act != "silu":
        return False
    return model.device.type != "cpu" or model.dtype is torch.float32


def copied_bytes(model: PreTrainedModel) -> int:
    """The size of the matrices that an `Eye` of this model copies."""
    if not suits(model):
        return 0
    config = model.config.vision_config
    return int(3 * _filled(config.intermediate_size) * config.hidden_size * config.depth * model.dtype.itemsize)

"""Shards a model over processes with PyTorch's FSDP2, so that models larger than one device can be trained.

Each rank stores its part of every parameter, gradient and moment. A layer's weights are gathered right before the layer
runs, forward and backward; or they are kept until an optimiser step changes them (`keep`). Losses are sums with global
denominators (promise 6), so the gradients of ranks are added up and not averaged. Adapters are small, so every rank has
all of their weights, and their gradients are added up (`ranks.py`).

A sharded model cannot be sampled from. Its engine has weights of its own, which are updated after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from interplay.errors import ConfigError
from interplay.models import fused
from interplay.models.shape import decoder_of
from interplay.training.forward import SHARDED, predict_here
from interplay.training.ranks import Ranks


def shard(model: PreTrainedModel, device: str, keep: bool, frozen: bool) -> Ranks:
    """Split the parameters of `model` over the ranks of the current process group, and move them to `device`. With
    `keep`, gathered weights stay in memory until `Ranks.release` is called, which must follow every change of them.
    Weights that are kept and frozen would stay gathered for ever, so every rank has them whole from the start."""
    if keep and frozen:
        return _joined(model.to(device), Ranks(dist.get_rank(), dist.get_world_size()))
    core = model.base_model
    layers = [m for m in core.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers or decoder_of(model) is not core:
        raise ConfigError(
            f"train.shard is 'fsdp', and {type(model).__name__} is not a plain stack of layers that read text; "
            "expected a decoder such as Llama or Qwen, or train.shard = 'none'."
        )
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    # A single rank that keeps its weights has no messages to send while layers are computed. So all of its weights are
    # one group, since every group costs the host time in every micro-batch.
    for layer in layers if mesh.size() > 1 or not keep else ():
        fully_shard(layer, mesh=mesh)
    whole = fully_shard(model, mesh=mesh)
    # By default, FSDP would keep the outermost weights after a forward pass. Then a pass without a backward one would
    # leave them gathered, and the next pass would not see what the optimiser changed.
    whole.set_reshard_after_forward(not keep)
    whole.set_reshard_after_backward(not keep)
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    # One rank has nothing to add up, and FSDP would divide its gradients by 1 in a pass of its own.
    for module in parts if mesh.size() > 1 else ():
        module.set_force_sum_reduction_for_comms(True)
        module.set_gradient_divide_factor(1.0)
    object.__setattr__(model, SHARDED, partial(_predict, model))
    register_fsdp_forward_method(model, SHARDED)
    if (apart := fused.apart(model)) is not None:
        apart.enter_layers(register_fsdp_forward_method)
    return _joined(model, Ranks(dist.get_rank(), dist.get_world_size(), partial(_release, parts)))


def _joined(model: PreTrainedModel, ranks: Ranks) -> Ranks:
    object.__setattr__(model, "_interplay_ranks", ranks)
    return ranks


def _release(parts: Sequence[FSDPModule]) -> None:
    for part in parts:
        part.reshard()


def _predict(model: PreTrainedModel, *given: Any) -> tuple[Tensor, ...]:
    """The results of `predict_here` as copies: FSDP puts hooks on them, and hooks on a view can be lost."""
    return tuple(tensor.clone() for tensor in predict_here(model, *given))

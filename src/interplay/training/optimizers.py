"""The optimisers that a recipe can name. All of them update fp32 parameters or fp32 copies (`masters.py`).

`adamw` is torch's. `adamw_8bit` keeps both moments in 8 bits, in blocks of 256 with a scale each (2110.02861): 2 bytes
per parameter instead of 8. Tensors of fewer than 4,096 numbers keep theirs in fp32. The `paged` optimisers let the
driver move their state to the host when GPU memory is short. All but `adamw` come from bitsandbytes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from interplay.config import TrainSection
from interplay.errors import ConfigError, GuardError
from interplay.training.ranks import ALONE, Ranks, own_part, placed, spread

_THEIRS = {"adamw_8bit": "AdamW8bit", "paged_adamw": "PagedAdamW", "paged_adamw_8bit": "PagedAdamW8bit"}


def make_optimizer(parameters: Iterable[Tensor], config: TrainSection, lr: float) -> torch.optim.Optimizer:
    own = list(parameters)
    settings: dict[str, Any] = {
        "lr": lr, "betas": (config.beta1, config.beta2), "eps": 1e-8, "weight_decay": config.weight_decay,
    }  # fmt: skip
    on_gpu = own[0].is_cuda
    if config.optimizer == "adamw":  # on a CPU, keep torch's default implementation
        return torch.optim.AdamW(own, **settings, fused=on_gpu or None)
    if config.optimizer.startswith("paged") and not on_gpu:
        raise ConfigError(
            f"train.optimizer is '{config.optimizer}', which needs a GPU driver that moves its pages, but this run is "
            f"on a CPU; expected '{config.optimizer.removeprefix('paged_')}'."
        )
    return getattr(_bitsandbytes(config.optimizer).optim, _THEIRS[config.optimizer])(own, **settings)


def moments(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> dict[str, Any]:
    """The state of an optimiser whose tensors are this rank's parts of `parameters`. The moments of a sharded parameter
    are returned as sharded tensors."""
    state = optimizer.state_dict()
    return {**state, "state": _each_moment(state["state"], parameters, spread)}


def load_moments(
    optimizer: torch.optim.Optimizer, state: Mapping[str, Any], parameters: Sequence[Tensor] | None = None
) -> None:
    """Load the moments from a checkpoint. Weight decay and betas stay those of the current recipe. `parameters` are
    those whose parts the optimiser has, if it has parts."""
    own = [{k: v for k, v in group.items() if k not in ("params", "lr")} for group in optimizer.param_groups]
    like = _tensors(optimizer) if parameters is None else parameters
    found = _each_moment(state["state"], like, lambda moment, p: own_part(placed(moment, p)))
    optimizer.load_state_dict({**state, "state": found})
    for group, mine in zip(optimizer.param_groups, own, strict=True):
        group.update(mine)


def _each_moment(
    state: Mapping[int, Mapping[str, Any]], parameters: Sequence[Tensor], change: Callable[[Tensor, Tensor], Tensor]
) -> dict[int, dict[str, Any]]:
    return {
        i: {k: change(v, parameters[i]) if isinstance(v, Tensor) else v for k, v in each.items()}
        for i, each in state.items()
    }


def _tensors(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def clipped_step(
    optimizer: torch.optim.Optimizer, limit: float, loss: float, who: str, remedy: str, ranks: Ranks = ALONE
) -> float:
    """Clip the gradient norm to `limit` and take a step; return the norm before clipping. If the loss or the norm is
    not finite, raise and take no step. `ranks` are those over which the optimiser's tensors are split."""
    tensors = _tensors(optimizer)
    total = ranks.norm(nn.utils.get_total_norm([t.grad for t in tensors if t.grad is not None]))
    nn.utils.clip_grads_with_norm_(tensors, limit, total)
    norm = float(total)
    if not (math.isfinite(norm) and math.isfinite(loss)):
        optimizer.zero_grad(set_to_none=True)
        raise GuardError(
            f"{who} got a loss of {loss} and a gradient norm of {norm}, so the step was not taken; {remedy} or look at "
            "the last episodes for broken rewards."
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def _bitsandbytes(wanted: str) -> Any:
    logger = logging.getLogger("bitsandbytes")
    before = logger.level
    logger.setLevel(logging.ERROR)  # it warns about kernels that are not used here
    try:
        import bitsandbytes
    except ImportError:
        raise ConfigError(
            f"train.optimizer is '{wanted}', which needs bitsandbytes; install it with pip install "
            "'interplay[optimizers]', or set 'adamw'."
        ) from None
    finally:
        logger.setLevel(before)
    return bitsandbytes

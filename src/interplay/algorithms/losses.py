"""Pure tensor functions over trained tokens. Each returns a *sum* under global weights, so micro-batches add up.

`Targets.weights_N` already holds 1/denominator (tokens or turns, over the whole minibatch of one policy): the loss
does not depend on how the batch is cut. Metrics are weighted sums too, and add up the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Targets:
    """Per trained token, N of them. `old` is the learner before the step; the ratio is π_θ / π_old."""

    advantages_N: Tensor
    old_logprobs_N: Tensor
    weights_N: Tensor
    ref_logprobs_N: Tensor | None = None  # the reference policy, where the loss keeps near it


@dataclass(frozen=True)
class Outputs:
    logprobs_N: Tensor
    entropy_N: Tensor


def policy_loss(
    targets: Targets,
    outputs: Outputs,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
    entropy: float,
    kl: float,
) -> tuple[Tensor, dict[str, float]]:
    """PPO's clipped objective (1707.06347, eq. 7), clip-higher (DAPO), dual clip (1912.09729, eq. 5), an entropy bonus
    and a pull to the reference: ½(log π − log π_ref)², whose gradient on sampled tokens is that of KL(π ‖ π_ref)."""
    advantage, weight = targets.advantages_N, targets.weights_N
    log_ratio = outputs.logprobs_N - targets.old_logprobs_N
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        objective = torch.where(advantage < 0, torch.maximum(objective, dual_clip * advantage), objective)
    loss = -(weight * objective).sum()
    if entropy:
        loss = loss - entropy * (weight * outputs.entropy_N).sum()
    metrics: dict[str, float] = {}
    if targets.ref_logprobs_N is not None:
        apart = outputs.logprobs_N - targets.ref_logprobs_N
        loss = loss + kl * (weight * 0.5 * apart**2).sum()
        metrics["kl_ref"] = (weight * apart).sum().item()
    with torch.no_grad():
        outside = torch.where(advantage > 0, ratio > 1 + clip_high, ratio < 1 - clip_low) & (advantage != 0)
        metrics |= {
            "entropy": (weight * outputs.entropy_N).sum().item(),
            "clip_share": (weight * outside).sum().item(),
            "kl_old": (weight * (torch.expm1(-log_ratio) + log_ratio)).sum().item(),
        }
    return loss, metrics


def value_loss(values_N: Tensor, targets_N: Tensor, old_N: Tensor, weights_N: Tensor, clip: float | None) -> Tensor:
    """Half the squared error; with `clip`, the worse of it and that of a value kept near its old estimate."""
    error = (values_N - targets_N) ** 2
    if clip is not None:
        near = old_N + (values_N - old_N).clamp(-clip, clip)
        error = torch.maximum(error, (near - targets_N) ** 2)
    return 0.5 * (weights_N * error).sum()


def sft_loss(logprobs_N: Tensor, weights_N: Tensor) -> Tensor:
    """Negative log-likelihood of given replies."""
    return -(weights_N * logprobs_N).sum()

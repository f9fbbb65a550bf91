"""Losses as pure tensor functions over trained tokens. The policy loss is a weighted *sum*, so micro-batches add up.

`Targets.weights_N` already holds 1/denominator (tokens or turns, over the whole minibatch of one policy), so the loss
does not depend on how the batch is split. Metrics are weighted sums too, and add up in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from interplay.errors import GuardError

KL = Literal["k2", "k3", "sequence"]
TIS_CAP = 2.0
ICEPOP_RANGE = (0.5, 5.0)


@dataclass(frozen=True)
class Targets:
    """Values for each of the N trained tokens. `old` is the learner before the step; the ratio is π_θ / π_old."""

    advantages_N: Tensor
    old_logprobs_N: Tensor
    weights_N: Tensor
    ref_logprobs_N: Tensor | None = None  # of the reference policy, if the loss has a KL term
    rollout_logprobs_N: Tensor | None = None  # of the engine that sampled; w = π_old / π_rollout
    turn_N: Tensor | None = None  # which turn of this micro-batch a token belongs to, counted from 0


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
    *,
    surrogate: Literal["clip", "gspo", "cispo"] = "clip",
    kl_kind: KL = "k2",
    correction: Literal["none", "tis", "icepop"] = "none",
) -> tuple[Tensor, dict[str, Tensor]]:
    """The policy loss: a clipped surrogate with an optional correction for the engine, an entropy bonus and a KL term
    that pulls to the reference. The metrics are tensors, so that the caller can read them from the device later."""
    advantage, weight = targets.advantages_N, targets.weights_N
    log_ratio = outputs.logprobs_N - targets.old_logprobs_N
    ratio = (turn_mean(log_ratio, targets.turn_N) if surrogate == "gspo" else log_ratio).exp()
    if surrogate == "cispo":
        objective = cispo_objective(ratio, outputs.logprobs_N, advantage, clip_low, clip_high)
    else:
        objective = clip_objective(ratio, advantage, clip_low, clip_high, dual_clip)
    metrics: dict[str, Tensor] = {}
    if correction != "none" and targets.rollout_logprobs_N is not None:
        w = engine_weight(targets.old_logprobs_N - targets.rollout_logprobs_N, correction)
        objective = w * objective
        metrics["correction"] = (weight * w).sum()
    loss = -(weight * objective).sum()
    if entropy:
        loss = loss - entropy * (weight * outputs.entropy_N).sum()
    if targets.ref_logprobs_N is not None:
        apart = outputs.logprobs_N - targets.ref_logprobs_N
        pull = sequence_kl(apart, targets.turn_N) if kl_kind == "sequence" else kl_estimate(apart, kl_kind)
        loss = loss + kl * (weight * pull).sum()
        metrics["kl_ref"] = (weight * apart).sum().detach()
    with torch.no_grad():
        outside = torch.where(advantage > 0, ratio > 1 + clip_high, ratio < 1 - clip_low) & (advantage != 0)
        metrics |= {
            "entropy": (weight * outputs.entropy_N).sum(),
            "clip_share": (weight * outside).sum(),
            "kl_old": (weight * kl_estimate(log_ratio, "k3")).sum(),
        }
    return loss, metrics


def clip_objective(ratio: Tensor, advantage: Tensor, low: float, high: float, dual: float | None) -> Tensor:
    """PPO's clipped objective (1707.06347, sec. 3). With `high` > `low` it is clip-higher (DAPO). With `dual` it is
    dual clip (1912.09729): for A < 0 the objective is at least `dual`·A."""
    objective = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    if dual is not None:
        objective = torch.where(advantage < 0, torch.maximum(objective, dual * advantage), objective)
    return objective


def cispo_objective(ratio: Tensor, logprobs: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """CISPO (2506.13585, sec. 3.1): sg(clip(ratio))·A·log π. A clipped token keeps a gradient with clipped weight."""
    return ratio.detach().clamp(1 - low, 1 + high) * advantage * logprobs


def turn_mean(log_ratio_N: Tensor, turn_N: Tensor | None) -> Tensor:
    """Each token's log ratio replaced by the mean over its turn: the sequence ratio of GSPO (2507.18071, sec. 4)."""
    if turn_N is None:
        raise GuardError("the sequence ratio needs the turn of each token, but Targets.turn_N is missing.")
    size = int(turn_N.max()) + 1
    total = log_ratio_N.new_zeros(size).index_add(0, turn_N, log_ratio_N)
    count = log_ratio_N.new_zeros(size).index_add(0, turn_N, torch.ones_like(log_ratio_N))
    return (total / count).index_select(0, turn_N)


def engine_weight(log_w: Tensor, kind: Literal["tis", "icepop"]) -> Tensor:
    """The importance weight w = π_old / π_rollout, which corrects for an engine whose numerics differ from the
    learner's. TIS caps w at 2. IcePop sets w outside 0.5 to 5 to zero. No gradient flows through w."""
    w = log_w.detach().exp()
    if kind == "tis":
        return w.clamp(max=TIS_CAP)
    low, high = ICEPOP_RANGE
    return torch.where((w >= low) & (w <= high), w, torch.zeros_like(w))


def kl_estimate(apart: Tensor, kind: Literal["k2", "k3"]) -> Tensor:
    """Estimates KL(π ‖ π_ref) of single tokens from samples of π. `apart` = log π − log π_ref (k1).

    Used as a loss on sampled tokens, k2 = ½·k1² has, in expectation, the gradient of each token's KL *given its
    prefix*. It ignores that a token also changes what can follow, so it is not the gradient of the KL between whole
    replies (`sequence_kl` has that one). The gradient of k3 = e^{−k1} − 1 + k1 is biased, and the gradient of k1 is
    zero in expectation."""
    return 0.5 * apart**2 if kind == "k2" else torch.expm1(-apart) + apart


def sequence_kl(apart_N: Tensor, turn_N: Tensor | None) -> Tensor:
    """Estimates KL(π ‖ π_ref) of whole replies. Its value at a token is k1. Its gradient is Σ_{s≥t} k1_s · ∇log π_t,
    which in expectation is the gradient of the KL between replies. Each token's gradient depends on the drift from that
    token to the end of its reply, so this is noisier than k2. Tokens of one reply must be adjacent and in order."""
    if turn_N is None:
        raise GuardError("the KL of a reply needs the turn of each token, but Targets.turn_N is missing.")
    drift = apart_N.detach().double()
    from_here = torch.cat([drift.flip(0).cumsum(0).flip(0), drift.new_zeros(1)])
    ends_R = torch.bincount(turn_N).cumsum(0)
    ahead = (from_here[:-1] - from_here[ends_R[turn_N]]).to(apart_N.dtype)
    return apart_N.detach() + ahead * (apart_N - apart_N.detach())


def value_loss(values_N: Tensor, targets_N: Tensor, old_N: Tensor, weights_N: Tensor, clip: float | None) -> Tensor:
    """Half the squared error. With `clip`, the larger of this error and the error of a value that stays within `clip`
    of its old estimate."""
    error = (values_N - targets_N) ** 2
    if clip is not None:
        near = old_N + (values_N - old_N).clamp(-clip, clip)
        error = torch.maximum(error, (near - targets_N) ** 2)
    return 0.5 * (weights_N * error).sum()


def sft_loss(logprobs_N: Tensor, weights_N: Tensor) -> Tensor:
    """Negative log-likelihood of given replies."""
    return -(weights_N * logprobs_N).sum()


def dpo_loss(margin_P: Tensor, beta: float) -> Tensor:
    """DPO (2305.18290, sec. 4) over P pairs, `margin` = (log π_w − log ref_w) − (log π_l − log ref_l)."""
    return -F.logsigmoid(beta * margin_P).mean()


def ipo_loss(margin_P: Tensor, beta: float) -> Tensor:
    """IPO (2310.12036, sec. 5): pulls the margin to 1/(2β) and no further, so that the margins of clear pairs do not
    grow without bound."""
    return ((margin_P - 1 / (2 * beta)) ** 2).mean()


def gumbel_loss(logits_NA: Tensor, action_values_NA: Tensor, noise_NA: Tensor, temperature: float) -> Tensor:
    """MADDPG's actor loss (1706.02275, sec. 4.1) over A legal actions. The central critic values a straight-through
    Gumbel sample (1611.01144) of the agent's action, while the other agents' actions stay as they were. `noise` is
    Gumbel(0, 1)."""
    soft = torch.softmax((logits_NA + noise_NA) / temperature, dim=-1)
    hard = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
    return -((hard + soft - soft.detach()) * action_values_NA).sum(-1).mean()

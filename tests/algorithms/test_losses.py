"""The losses against numbers worked out by hand, and additive over micro-batches."""

from __future__ import annotations

import math

import pytest
import torch

from interplay.algorithms import make
from interplay.algorithms.losses import Outputs, Targets, policy_loss, sft_loss, value_loss
from interplay.config import Open, RewardSection


def run(
    ratio: float, advantage: float, dual_clip: float | None = None, low: float = 0.2, high: float = 0.2
) -> tuple[float, float]:
    """The loss of one token at a ratio, and its gradient by the log-prob."""
    logp = torch.tensor([math.log(ratio)], requires_grad=True)
    targets = Targets(torch.tensor([advantage]), torch.zeros(1), torch.ones(1))
    loss, _ = policy_loss(targets, Outputs(logp, torch.zeros(1)), low, high, dual_clip, 0.0, 0.0)
    loss.backward()
    return loss.item(), float(logp.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.4, 0.0),  # clipped at 1.2: nothing more to gain
        (0.5, 2.0, -1.0, -1.0),  # a good action that became unlikely is pulled back
        (0.5, -2.0, 1.6, 0.0),  # clipped at 0.8
        (1.5, -2.0, 3.0, 3.0),  # a bad action that became likely is pushed down
        (1.0, 0.0, 0.0, 0.0),
    ],
)
def test_ppo_clip(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    """−min(ratio·A, clip(ratio, 0.8, 1.2)·A)."""
    assert run(ratio, advantage) == pytest.approx((loss, gradient), abs=1e-6)


def test_dual_clip_bounds_the_loss_of_bad_actions_only() -> None:
    """For A < 0 the objective is at least c·A: at ratio 10 and A −1 the loss is 3, without gradient."""
    assert run(10.0, -1.0) == pytest.approx((10.0, 10.0), rel=1e-5)
    assert run(10.0, -1.0, dual_clip=3.0) == pytest.approx((3.0, 0.0), rel=1e-5)
    assert run(0.1, 1.0, dual_clip=3.0) == run(0.1, 1.0)


def test_clip_higher_is_not_symmetric() -> None:
    assert run(1.25, 1.0, low=0.2, high=0.28) == pytest.approx((-1.25, -1.25), abs=1e-6)
    assert run(1.25, 1.0, low=0.28, high=0.2) == pytest.approx((-1.2, 0.0), abs=1e-6)


def test_entropy_and_kl_terms() -> None:
    """Entropy is a bonus; the pull to the reference is ½(log π − log π_ref)², its gradient log π − log π_ref."""
    logp = torch.tensor([-1.0], requires_grad=True)
    targets = Targets(torch.zeros(1), torch.tensor([-1.0]), torch.ones(1), torch.tensor([-3.0]))
    loss, metrics = policy_loss(targets, Outputs(logp, torch.tensor([0.7])), 0.2, 0.2, None, entropy=0.5, kl=0.1)
    loss.backward()
    assert loss.item() == pytest.approx(-0.5 * 0.7 + 0.1 * 0.5 * 4)
    assert float(logp.grad) == pytest.approx(0.1 * 2)  # type: ignore[arg-type]
    assert metrics["kl_ref"] == pytest.approx(2.0) and metrics["entropy"] == pytest.approx(0.7)


def test_metrics_say_how_far_the_policy_went() -> None:
    """A share counts only tokens whose clipped side is active; kl_old is e^{−x} − 1 + x of the log ratio x."""
    logp = torch.tensor([math.log(1.5), math.log(1.5), 0.0, 0.0])
    targets = Targets(torch.tensor([1.0, -1.0, 1.0, 0.0]), torch.zeros(4), torch.full((4,), 0.25))
    _, metrics = policy_loss(targets, Outputs(logp, torch.zeros(4)), 0.2, 0.2, None, 0.0, 0.0)
    assert metrics["clip_share"] == pytest.approx(0.25)
    assert metrics["kl_old"] == pytest.approx(0.5 * (1 / 1.5 - 1 + math.log(1.5)), abs=1e-6)


@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_losses_add_up_over_micro_batches(kl: float) -> None:
    """Promise 6 at the level of the loss: weights are global, so the parts sum to the whole, metrics too."""
    g = torch.Generator().manual_seed(0)
    advantages, old, new, weights, entropy, ref = (torch.randn(12, generator=g) for _ in range(6))
    settings = make(Open(name="grpo", kl=kl, entropy=0.1, dual_clip=3.0), RewardSection())

    def cut(part: slice) -> tuple[float, dict[str, float]]:
        reference = ref[part] if kl else None
        loss, metrics = settings.loss(
            Targets(advantages[part], old[part], weights[part].abs(), reference), Outputs(new[part], entropy[part])
        )
        return loss.item(), metrics

    whole, left, right = cut(slice(None)), cut(slice(0, 5)), cut(slice(5, None))
    assert whole[0] == pytest.approx(left[0] + right[0], rel=1e-5)
    assert whole[1] == pytest.approx({k: v + right[1][k] for k, v in left[1].items()}, rel=1e-4, abs=1e-6)


def test_value_loss_takes_the_worse_of_clipped_and_not() -> None:
    """Target 2, old 0, value 1: ½·1. Kept within 0.5 of the old: ½·(0.5 − 2)² = 1.125 is worse."""
    value, target, old, weight = (torch.tensor([x]) for x in (1.0, 2.0, 0.0, 1.0))
    assert value_loss(value, target, old, weight, None).item() == 0.5
    assert value_loss(value, target, old, weight, 0.5).item() == 1.125
    assert value_loss(value, target, old, weight, 5.0).item() == 0.5


def test_imitation_is_the_negative_log_likelihood() -> None:
    assert sft_loss(torch.tensor([-1.0, -3.0]), torch.tensor([0.5, 0.5])).item() == 2.0

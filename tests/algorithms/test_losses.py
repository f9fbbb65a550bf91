"""The losses are compared with numbers computed by hand, and add up over micro-batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from interplay.algorithms import make
from interplay.algorithms.losses import (
    Outputs,
    Targets,
    dpo_loss,
    engine_weight,
    gumbel_loss,
    ipo_loss,
    kl_estimate,
    policy_loss,
    sft_loss,
    value_loss,
)
from interplay.config import Open, RewardSection
from interplay.errors import GuardError


def run(
    ratio: float, advantage: float, dual_clip: float | None = None, low: float = 0.2, high: float = 0.2
) -> tuple[float, float]:
    """The loss of one token at a ratio, and its gradient with respect to the log-prob."""
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
    """Entropy is a bonus; the KL term is ½(log π − log π_ref)², with the gradient log π − log π_ref."""
    logp = torch.tensor([-1.0], requires_grad=True)
    targets = Targets(torch.zeros(1), torch.tensor([-1.0]), torch.ones(1), torch.tensor([-3.0]))
    loss, metrics = policy_loss(targets, Outputs(logp, torch.tensor([0.7])), 0.2, 0.2, None, entropy=0.5, kl=0.1)
    loss.backward()
    assert loss.item() == pytest.approx(-0.5 * 0.7 + 0.1 * 0.5 * 4)
    assert float(logp.grad) == pytest.approx(0.1 * 2)  # type: ignore[arg-type]
    assert metrics["kl_ref"].item() == pytest.approx(2.0) and metrics["entropy"].item() == pytest.approx(0.7)


def test_metrics_say_how_far_the_policy_went() -> None:
    """A share counts only tokens whose clipped side is active; kl_old is e^{−x} − 1 + x of the log ratio x."""
    logp = torch.tensor([math.log(1.5), math.log(1.5), 0.0, 0.0])
    targets = Targets(torch.tensor([1.0, -1.0, 1.0, 0.0]), torch.zeros(4), torch.full((4,), 0.25))
    _, metrics = policy_loss(targets, Outputs(logp, torch.zeros(4)), 0.2, 0.2, None, 0.0, 0.0)
    assert metrics["clip_share"].item() == pytest.approx(0.25)
    assert metrics["kl_old"].item() == pytest.approx(0.5 * (1 / 1.5 - 1 + math.log(1.5)), abs=1e-6)


@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_losses_add_up_over_micro_batches(kl: float) -> None:
    """Promise 6 for the loss: weights are global, so the parts add up to the whole, and so do the metrics."""
    g = torch.Generator().manual_seed(0)
    advantages, old, new, weights, entropy, ref = (torch.randn(12, generator=g) for _ in range(6))
    settings = make(Open(name="grpo", kl=kl, entropy=0.1, dual_clip=3.0), RewardSection(), seed=0)

    def cut(part: slice) -> tuple[float, dict[str, float]]:
        reference = ref[part] if kl else None
        loss, metrics = settings.loss(
            Targets(advantages[part], old[part], weights[part].abs(), reference), Outputs(new[part], entropy[part])
        )
        return loss.item(), {k: v.item() for k, v in metrics.items()}

    whole, left, right = cut(slice(None)), cut(slice(0, 5)), cut(slice(5, None))
    assert whole[0] == pytest.approx(left[0] + right[0], rel=1e-5)
    assert whole[1] == pytest.approx({k: v + right[1][k] for k, v in left[1].items()}, rel=1e-4, abs=1e-6)


def test_value_loss_takes_the_worse_of_clipped_and_not() -> None:
    """Target 2, old value 0, value 1: ½·1. The value within 0.5 of the old one gives ½·(0.5 − 2)² = 1.125, which is
    larger."""
    value, target, old, weight = (torch.tensor([x]) for x in (1.0, 2.0, 0.0, 1.0))
    assert value_loss(value, target, old, weight, None).item() == 0.5
    assert value_loss(value, target, old, weight, 0.5).item() == 1.125
    assert value_loss(value, target, old, weight, 5.0).item() == 0.5


def test_imitation_is_the_negative_log_likelihood() -> None:
    assert sft_loss(torch.tensor([-1.0, -3.0]), torch.tensor([0.5, 0.5])).item() == 2.0


# -- the rest of the family -------------------------------------------------------------------------------------------


def one(
    ratios: list[float], advantages: list[float], turns: list[int], low: float = 0.2, high: float = 0.2, **kind: Any
) -> tuple[float, list[float]]:
    """Loss and gradient with respect to log π, with weight 1 for every token and π_old = 1."""
    logp = torch.tensor(ratios).log().requires_grad_()
    n = len(ratios)
    targets = Targets(
        torch.tensor(advantages), torch.zeros(n), torch.ones(n), rollout_logprobs_N=torch.zeros(n),
        turn_N=torch.tensor(turns),
    )  # fmt: skip
    loss, _ = policy_loss(targets, Outputs(logp, torch.zeros(n)), low, high, None, 0.0, 0.0, **kind)
    loss.backward()
    return loss.item(), logp.grad.tolist()  # type: ignore[union-attr]


def test_gspo_has_one_ratio_per_turn() -> None:
    """Turn 0: ratios 2 and ½, whose geometric mean is 1, so neither is clipped; turn 1: ratio 4, clipped at 1.2."""
    loss, gradient = one([2.0, 0.5, 4.0], [1.0, 1.0, 1.0], [0, 0, 1], surrogate="gspo")
    assert loss == pytest.approx(-(1 + 1 + 1.2))
    assert gradient == pytest.approx([-1.0, -1.0, 0.0])  # two tokens, each half of a ratio of 1: 2 · ½
    _, apart = one([2.0, 0.5], [1.0, 1.0], [0, 0])
    assert apart == pytest.approx([0.0, -0.5]), "with a ratio per token the first is clipped"


def test_gspo_needs_to_know_its_turns() -> None:
    targets = Targets(torch.ones(1), torch.zeros(1), torch.ones(1))
    with pytest.raises(GuardError, match="turn_N"):
        policy_loss(targets, Outputs(torch.zeros(1), torch.zeros(1)), 0.2, 0.2, None, 0.0, 0.0, surrogate="gspo")


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    """−sg(min(ratio, 6))·A·log π: at ratio 10 the gradient is −6·A; PPO's would be 0."""
    loss, gradient = one([10.0, 0.1], [1.0, -1.0], [0, 0], low=1.0, high=5.0, surrogate="cispo")
    assert gradient == pytest.approx([-6.0, 0.1])
    assert loss == pytest.approx(-6 * math.log(10) + 0.1 * math.log(0.1))


@pytest.mark.parametrize(
    ("kind", "weights"),
    [("tis", [0.1, 1.0, 2.0, 2.0]), ("icepop", [0.0, 1.0, 3.0, 0.0])],
)
def test_engine_corrections(kind: Any, weights: list[float]) -> None:
    """w = 0.1, 1, 3, 10: TIS caps at 2, IcePop sets values outside 0.5 to 5 to zero."""
    w = torch.tensor([0.1, 1.0, 3.0, 10.0], requires_grad=True)
    found = engine_weight(w.log(), kind)
    assert found.tolist() == pytest.approx(weights)
    assert not found.requires_grad


def test_the_correction_multiplies_the_objective() -> None:
    """The learner's log-prob is log 4 above the engine's: TIS doubles the token's weight, and the mean weight is
    logged."""
    logp = torch.zeros(1, requires_grad=True)
    targets = Targets(torch.ones(1), torch.zeros(1), torch.ones(1), rollout_logprobs_N=torch.tensor([-math.log(4)]))
    loss, metrics = policy_loss(targets, Outputs(logp, torch.zeros(1)), 0.2, 0.2, None, 0.0, 0.0, correction="tis")
    assert loss.item() == pytest.approx(-2.0) and metrics["correction"].item() == pytest.approx(2.0)


def test_kl_estimates() -> None:
    """k1 = 1: k2 = ½ with gradient 1, k3 = e⁻¹ − 1 + 1 with gradient 1 − e⁻¹."""
    for kind, value, slope in [("k2", 0.5, 1.0), ("k3", math.exp(-1), 1 - math.exp(-1))]:
        apart = torch.tensor([1.0], requires_grad=True)
        found = kl_estimate(apart, kind)  # type: ignore[arg-type]
        found.backward()
        assert (found.item(), apart.grad.item()) == pytest.approx((value, slope))  # type: ignore[union-attr]


def test_k2_has_the_gradient_of_the_kl_and_k3_does_not() -> None:
    """Over a whole softmax, in expectation under π (samples fixed): Σ π·∇k2 is ∇KL(π ‖ ref), Σ π·∇k3 is not."""
    logits, ref = torch.tensor([0.3, -0.7, 1.1], requires_grad=True), torch.tensor([0.2, 0.5, 0.3]).log()

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
        return found

    logp = torch.log_softmax(logits, 0)
    exact = gradient((logp.exp() * (logp - ref)).sum())
    sampled = {k: gradient((logp.detach().exp() * kl_estimate(logp - ref, k)).sum()) for k in ("k2", "k3")}  # type: ignore[arg-type]
    assert torch.allclose(sampled["k2"], exact, atol=1e-6)
    assert not torch.allclose(sampled["k3"], exact, atol=1e-2)


def test_dpo_and_ipo() -> None:
    """β 0.5, margin 2: −log σ(1); at margin 0 log 2. IPO with β 0.5 pulls to 1: (2 − 1)² and (0 − 1)²."""
    margin = torch.tensor([2.0, 0.0])
    assert dpo_loss(margin, 0.5).item() == pytest.approx((math.log1p(math.exp(-1)) + math.log(2)) / 2)
    assert ipo_loss(margin, 0.5).item() == pytest.approx(1.0)
    assert ipo_loss(torch.tensor([1.0]), 0.5).item() == 0.0


def test_gumbel_is_hard_forward_and_soft_backward() -> None:
    """Noise makes the second action win: its value is the objective. The gradient is that of the softmax's mean value:
    with p = (½, ½) and values 0 and 4, dE/dlogit = p·(q − E) = ∓1."""
    logits, values = torch.zeros(1, 2, requires_grad=True), torch.tensor([[0.0, 4.0]])
    loss = gumbel_loss(logits, values, torch.tensor([[0.0, 1e-6]]), temperature=1.0)
    loss.backward()
    assert loss.item() == pytest.approx(-4.0)
    assert logits.grad.flatten().tolist() == pytest.approx([1.0, -1.0], abs=1e-5)  # type: ignore[union-attr]

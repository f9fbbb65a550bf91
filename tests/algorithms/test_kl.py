"""The KL penalty, on a language model that is so small that all its replies can be listed.

There are three tokens, one of which is the end token. A reply has one to three tokens, and the next token depends on
all earlier ones. Every reply is listed with its probability, so expectations are computed as sums and not estimated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from interplay.algorithms.losses import Outputs, Targets, policy_loss
from interplay.algorithms.ppo import PPO
from interplay.config import RewardSection, validate
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Rewards, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]
Reply = tuple[int, ...]
END, LONGEST = 2, 3
ROUNDING = 200 * 2**-53  # sums of some hundred terms of size 1, in double precision


class Model:
    """Logits of the next token after every prefix."""

    def __init__(self, seed: int) -> None:
        prefixes = [p for n in range(LONGEST) for p in itertools.product((0, 1), repeat=n)]
        self.row = {prefix: i for i, prefix in enumerate(prefixes)}
        generator = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(len(prefixes), 3, generator=generator, dtype=torch.float64).requires_grad_()

    def next(self, prefix: Reply) -> Tensor:
        return torch.log_softmax(self.logits[self.row[prefix]], dim=0)

    def logprobs(self, reply: Reply) -> Tensor:
        """The log-prob of each of its tokens."""
        return torch.stack([self.next(reply[:n])[token] for n, token in enumerate(reply)])

    def gradient(self, of: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(of, self.logits, retain_graph=True)
        return found


def replies() -> Iterator[Reply]:
    for n in range(LONGEST):
        for prefix in itertools.product((0, 1), repeat=n):
            yield (*prefix, END)
    yield from itertools.product((0, 1), repeat=LONGEST)  # cut at the limit


@pytest.fixture
def models() -> tuple[Model, Model]:
    """The policy and its reference."""
    return Model(0), Model(1)


def kl_of_replies(policy: Model, reference: Model) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for reply in replies():
        mine, theirs = policy.logprobs(reply).sum(), reference.logprobs(reply).sum()
        total = total + mine.exp() * (mine - theirs.detach())
    return total


def kl_of_tokens(policy: Model, reference: Model) -> Tensor:
    """The KL of each token given its prefix, weighted by the probability of the prefix, which has no gradient."""
    total = torch.zeros((), dtype=torch.float64)
    for prefix in policy.row:
        reach = policy.logprobs(prefix).sum().exp().detach() if prefix else torch.ones((), dtype=torch.float64)
        mine, theirs = policy.next(prefix), reference.next(prefix).detach()
        total = total + reach * (mine.exp() * (mine - theirs)).sum()
    return total


def pull(logp: Tensor, reference: Tensor, turns: list[int] | None, kind: Any) -> Tensor:
    """The KL term of the loss, with weight 1 for each token."""
    zeros, old = torch.zeros_like(logp), logp.detach()
    turn_N = None if turns is None else torch.tensor(turns)
    targets = Targets(zeros.detach(), old, torch.ones_like(old), reference.detach(), old, turn_N)
    return policy_loss(targets, Outputs(logp, zeros), 0.2, 0.2, None, 0.0, 1.0, kl_kind=kind)[0]


def expected_pull(policy: Model, reference: Model, kind: Any) -> Tensor:
    """The gradient of the loss's KL term, in expectation over all replies."""
    whole = torch.zeros((), dtype=torch.float64)
    for reply in replies():
        logp = policy.logprobs(reply)
        loss = pull(logp, reference.logprobs(reply), [0] * len(reply), kind)
        whole = whole + logp.detach().sum().exp() * loss
    return policy.gradient(whole)


def test_all_replies_are_listed(models: tuple[Model, Model]) -> None:
    total = math.fsum(models[0].logprobs(reply).sum().exp().item() for reply in replies())
    assert total == pytest.approx(1.0, abs=ROUNDING)


def test_the_sequence_estimate_has_the_gradient_of_the_kl_between_replies(models: tuple[Model, Model]) -> None:
    wanted = models[0].gradient(kl_of_replies(*models))
    assert torch.allclose(expected_pull(*models, "sequence"), wanted, rtol=0, atol=ROUNDING)


def test_k2_has_the_gradient_of_each_tokens_kl_and_not_of_the_replys(models: tuple[Model, Model]) -> None:
    """It ignores that a token changes which prefixes come next; here this is more than a tenth of the gradient."""
    found = expected_pull(*models, "k2")
    assert torch.allclose(found, models[0].gradient(kl_of_tokens(*models)), rtol=0, atol=ROUNDING)
    whole = models[0].gradient(kl_of_replies(*models))
    assert (found - whole).norm() > 0.1 * whole.norm()


def test_the_value_of_the_sequence_estimate_is_the_kl(models: tuple[Model, Model]) -> None:
    policy, reference = models
    total = 0.0
    for reply in replies():
        logp = policy.logprobs(reply)
        total += logp.sum().exp().item() * pull(logp, reference.logprobs(reply), [0] * len(reply), "sequence").item()
    assert total == pytest.approx(kl_of_replies(policy, reference).item(), abs=ROUNDING)


def test_replies_of_one_micro_batch_are_told_apart() -> None:
    """Drifts 1, 2 | 4 | 8, 16, 32: each token is responsible for itself and the rest of its own reply."""
    logp = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], dtype=torch.float64, requires_grad=True)
    pull(logp, torch.zeros(6, dtype=torch.float64), [0, 0, 1, 2, 2, 2], "sequence").backward()
    assert logp.grad is not None and logp.grad.tolist() == [3.0, 2.0, 4.0, 56.0, 48.0, 32.0]
    with pytest.raises(GuardError, match="turn_N"):
        pull(logp, torch.zeros(6, dtype=torch.float64), None, "sequence")


# -- as a reward, token by token --------------------------------------------------------------------------------------

BETA = 0.3


def worth(reply: Reply) -> float:
    """The environment's reward for a reply."""
    return reply.count(1) - 0.5 * len(reply)


def ppo(**settings: Any) -> PPO:
    options = {"level": "token", "kl_reward": BETA, "gae_lambda": 1.0, **settings}
    return PPO(validate(PPO.Settings, options, prefix="algorithm"), RewardSection())


def drawn(make_turn: MakeTurn, reply: Reply, models: tuple[Model, Model], given: Credit) -> Turn:
    """A turn with this `reply`, with the reference's log-probs and values of 0."""
    logprobs, reference = (tuple(m.logprobs(reply).tolist()) for m in models)
    turn = make_turn("X", worth(reply))
    sample = replace(turn.last, action=reply, logprobs=logprobs, versions=(0,) * len(reply))
    turn.samples = (sample,)
    given.reference[sample.id], given.values[sample.id] = reference, (0.0,) * len(reply)
    return turn


def returns(make_turn: MakeTurn, make_episode: MakeEpisode, reply: Reply, models: Any, **settings: Any) -> list[float]:
    """The return from each token on, according to PPO: the critic's targets, which are returns if λ is 1."""
    given = Credit()
    turn = drawn(make_turn, reply, models, given)
    algorithm = ppo(**settings)
    algorithm.shape([make_episode([turn])], given)
    algorithm.credit([make_episode([turn])], given)
    return list(given.targets[turn.last.id])


def test_each_token_is_paid_for_its_own_drift_and_what_follows(
    make_turn: MakeTurn, make_episode: MakeEpisode, models: tuple[Model, Model]
) -> None:
    reply = (0, 1, END)
    drifts = (models[0].logprobs(reply) - models[1].logprobs(reply)).tolist()
    wanted = [worth(reply) - BETA * math.fsum(drifts[n:]) for n in range(3)]
    assert returns(make_turn, make_episode, reply, models) == pytest.approx(wanted, abs=ROUNDING)


def test_the_weights_of_the_recipe_hold_for_it(
    make_turn: MakeTurn, make_episode: MakeEpisode, models: tuple[Model, Model]
) -> None:
    """Half of the process level, times three for the component: 1.5 times the penalty."""
    reply, given = (1, END), Credit()
    turn = drawn(make_turn, reply, models, given)
    turn.rewards = Rewards.process("format", {"X": 4.0})
    algorithm = PPO(ppo().settings, RewardSection(process=0.5, weights={"kl": 3.0}))
    algorithm.shape([make_episode([turn])], given)
    algorithm.credit([make_episode([turn])], given)
    drifts = (models[0].logprobs(reply) - models[1].logprobs(reply)).tolist()
    wanted = [2.0 - 1.5 * BETA * math.fsum(drifts[n:]) for n in range(2)]
    assert list(given.targets[turn.last.id]) == pytest.approx(wanted, abs=ROUNDING)


def test_the_policy_gradient_is_that_of_the_reward_less_the_kl_with_less_noise(
    make_turn: MakeTurn, make_episode: MakeEpisode, models: tuple[Model, Model]
) -> None:
    """Over all replies, Σ_t ∇log π_t · (return after t) is exactly ∇(E[reward] − β·KL). If the penalty is given at the
    end of the turn, the mean is the same and the variance is larger."""
    policy, reference = models
    objective = -BETA * kl_of_replies(policy, reference)
    for reply in replies():
        objective = objective + policy.logprobs(reply).sum().exp() * worth(reply)
    wanted = policy.gradient(objective)
    spread = {}
    for level in ("token", "turn"):
        mean, square = torch.zeros_like(wanted), 0.0
        for reply in replies():
            logp = policy.logprobs(reply)
            ahead = returns(make_turn, make_episode, reply, models, level=level)
            each = torch.tensor(ahead * (1 if level == "token" else len(reply)), dtype=torch.float64)
            gradient = policy.gradient((logp * each).sum())
            probability = logp.detach().sum().exp()
            mean, square = mean + probability * gradient, square + (probability * gradient.pow(2).sum()).item()
        assert torch.allclose(mean, wanted, rtol=0, atol=ROUNDING)
        spread[level] = square - wanted.pow(2).sum().item()
    assert spread["token"] < 0.95 * spread["turn"]


def test_the_pull_is_still_logged_by_name(
    make_turn: MakeTurn, make_episode: MakeEpisode, models: tuple[Model, Model], given: Credit
) -> None:
    reply = (0, END)
    turn = drawn(make_turn, reply, models, given)
    drift = (models[0].logprobs(reply) - models[1].logprobs(reply)).sum().item()
    metrics = ppo().shape([make_episode([turn])], given)
    assert metrics == {"reward/kl/X": pytest.approx(-BETA * drift, abs=ROUNDING)}

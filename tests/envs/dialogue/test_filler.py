"""The filler setting: its optimum is exact, and strong optimisation of the proxy makes gold fall."""

from __future__ import annotations

import math

import pytest

from interplay import envs
from interplay.envs.dialogue.filler import measured, optimum, replies, scores
from interplay.envs.env import outcome_of

OPTIONS = {"length": 8, "gain": 0.6, "loss": 0.06}
UNIFORM = dict.fromkeys(replies(8), -8 * math.log(2))


def test_gold_and_proxy_by_hand() -> None:
    assert scores("11100000", **OPTIONS) == pytest.approx({"proxy": 0.36, "gold": 1.26, "filler": 3.0})


@pytest.mark.parametrize("beta", [0.24, 0.12, 0.04])
def test_the_optimum_is_a_binomial_where_the_start_is_uniform(beta: float) -> None:
    """Each sign is 1 with σ(slope / β), independently; so are n, gold and KL known in closed form."""
    p = 1 / (1 + math.exp(-0.12 / beta))
    found = optimum(UNIFORM, beta, OPTIONS)
    assert found.filler == pytest.approx(8 * p)
    assert found.gold == pytest.approx(0.6 * 8 * p - 0.06 * (8 * p * (1 - p) + 64 * p * p))
    assert found.kl == pytest.approx(8 * (p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p))))


def test_the_optimum_beats_every_other_policy_at_what_it_is_best_for() -> None:
    beta = 0.12
    best = optimum(UNIFORM, beta, OPTIONS)
    for other in (0.06, 0.24, 1.0):
        found = optimum(UNIFORM, other, OPTIONS)
        assert found.proxy - beta * found.kl < best.proxy - beta * best.kl
    assert measured(UNIFORM, UNIFORM, OPTIONS).kl == 0.0


def test_a_weak_pull_makes_gold_fall_while_the_proxy_rises() -> None:
    strong, weak = optimum(UNIFORM, 0.12, OPTIONS), optimum(UNIFORM, 0.04, OPTIONS)
    assert weak.proxy > strong.proxy and weak.gold < strong.gold


def test_the_environment_pays_what_the_scores_say() -> None:
    env = envs.make(envs.sample_task("filler", {}))
    assert len(env.observe()["writer"].legal) == 256
    env.step({"writer": "11100000"})
    assert {r.name: r.value for r in outcome_of(env)} == pytest.approx(scores("11100000", **OPTIONS))
    lost = envs.make(envs.sample_task("filler", {}))
    assert [r.name for r in lost.step({"writer": "11"})] == ["illegal"]
    assert {r.value for r in outcome_of(lost)} == {0.0}

"""A tree that continues with the best reply plays better than its policy; what is reported is what the policy earns.

This is tested on games of the proving ground with policies that play all actions with equal probability, whose own
results are known exactly.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from statistics import fmean, stdev
from typing import Any

import pytest

from interplay import algorithms
from interplay.algorithms.credit import mix
from interplay.config import Open, RewardSection
from interplay.evaluation.games import GAMES
from interplay.evaluation.proving import Ground
from interplay.rollout.curriculum import results_of
from interplay.rollout.league import score
from interplay.rollout.subjects import Subject
from interplay.training.tally import tally
from interplay.types import Credit, Episode

GAME = {game.name: game for game in GAMES}
TASKS = 150


def play(
    game: str, reward: RewardSection | None = None, frozen: Collection[str] = (), **settings: Any
) -> tuple[list[Episode], RewardSection]:
    """Episodes of an algorithm that keeps the best of four replies, before any training."""
    algorithm = algorithms.make(Open(name="at_grpo", candidates=4, **settings), reward or RewardSection(), 0)
    ground = Ground(GAME[game], algorithm, frozen=frozen)
    episodes = asyncio.run(ground.runner.run([ground._task(i) for i in range(TASKS)], ground._seats))
    assert not any(e.error for e in episodes)
    return episodes, algorithm.reward


def four_errors(values: Sequence[float]) -> float:
    return 4 * stdev(values) / math.sqrt(len(values))


def test_a_curriculum_gets_the_policys_own_success() -> None:
    """Two words, one of them right, and the last one counts: a uniform policy is right half of the time, and the best
    of four replies nearly always."""
    episodes, _ = play("debate")
    kept = fmean(e.rewards.of("p0").records[-1].value or 0.0 for e in episodes)
    assert kept > 0.85
    found = [r.success for r in results_of(episodes, "solved", {"p0", "p1"}, Credit()).values()]
    assert len(found) == TASKS
    assert fmean(found) == pytest.approx(0.5, abs=four_errors(found))


def test_a_leagues_scores_are_those_of_the_policys_own_games() -> None:
    """Rock, paper, scissors between equal players that both play rock too often: an even score."""
    episodes, reward = play("rock_paper_scissors", frozen=("p1",))
    kept = [(mix(e.rewards, "p0", reward) + 1) / 2 for e in episodes]
    assert fmean(kept) > 0.5 + four_errors(kept)
    found = [score(e, "p0", reward) for e in episodes]
    assert fmean(found) == pytest.approx(0.5, abs=four_errors(found))


@pytest.mark.parametrize("gamma", [1.0, 0.5])
@pytest.mark.parametrize("frozen", [(), ("p0",)], ids=["both learn", "another opens"])
def test_reward_is_what_the_policy_earns_and_is_not_discounted(gamma: float, frozen: tuple[str, ...]) -> None:
    """One word of three is right for each of two roles: 2/3 on average, with a noise of ±1. `reward_kept` has the same
    units. This also holds if another player makes the first move."""
    episodes, reward = play("credit", RewardSection(gamma=gamma), frozen, playouts=2)
    metrics = tally(episodes, {"p0", "p1"} - {*frozen}, reward)
    assert metrics["reward/solved/team"] == pytest.approx(metrics["reward"])
    assert metrics["reward_level/team"] == pytest.approx(metrics["reward"])
    each = [fmean(mix(play, "p1", reward) for play in e.own) for e in episodes]
    assert metrics["reward"] == pytest.approx(fmean(each))
    assert metrics["reward"] == pytest.approx(2 / 3, abs=four_errors(each))
    kept = [mix(e.rewards, "p1", reward) for e in episodes]
    assert metrics["reward_kept"] == pytest.approx(fmean(kept))
    assert metrics["reward_kept"] > metrics["reward"] + four_errors(kept) / 2


@pytest.mark.parametrize("continuation", ["none", "critic", "round"])
def test_where_the_policys_own_result_is_not_known_there_is_no_reward(continuation: str) -> None:
    episodes, reward = play("two_step", continuation=continuation)
    metrics = tally(episodes, {"p0", "p1"}, reward)
    assert [name for name in sorted(metrics) if name.startswith("reward")] == [
        "reward_kept",
        "reward_kept/solved/team",
        "reward_level_kept/team",
    ]
    assert results_of(episodes, "solved", {"p0", "p1"}, Credit()) == {}


@pytest.mark.parametrize("keep", ["uniform", "first"])
def test_a_line_that_is_not_chosen_by_worth_is_the_policys_own(keep: str) -> None:
    episodes, reward = play("debate", keep=keep)
    metrics = tally(episodes, {"p0", "p1"}, reward)
    assert "reward_kept" not in metrics
    assert metrics["reward"] == pytest.approx(0.5, abs=four_errors([mix(e.rewards, "p1", reward) for e in episodes]))


def test_a_judges_reward_for_a_selected_line_is_not_reported_as_the_policys_own() -> None:
    episodes, reward = play("debate")
    for e in episodes:
        Subject(e, None, e.line()[-1], (), "").pay("taste", 1.0)
    metrics = tally(episodes, {"p0", "p1"}, reward)
    assert "reward" not in metrics and metrics["reward_kept/taste/team"] == 1.0

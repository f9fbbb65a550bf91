"""Custom compositions: no baseline contains what the action itself caused, or what another policy earned."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from interplay.algorithms.custom import Custom
from interplay.config import RewardSection, validate
from interplay.errors import ConfigError
from interplay.types import Credit, Episode, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]
FLAT = {"kind": "independent", "replicas": 2}


def custom(**settings: Any) -> Custom:
    return Custom(validate(Custom.Settings, settings, prefix="algorithm"), RewardSection())


@pytest.mark.parametrize(
    "grouping",
    [["episode", "role", "phase"], ["episode", "role", "tool"], ["task", "replica", "role", "prompt"]],
)
def test_a_baseline_of_ones_own_later_returns_is_refused(grouping: list[str]) -> None:
    """With independent episodes such a group is one line of play, whose later returns depend on its earlier actions."""
    with pytest.raises(ConfigError) as caught:
        custom(plan=FLAT, grouping=grouping)
    assert all(word in str(caught.value) for word in (str(grouping), "Earlier turns influence", "'task' in place of"))


def line(make_turn: MakeTurn, rewards: list[float], replica: int) -> list[Turn]:
    """Turns of one phase."""
    turns = [make_turn("X", r, replica=replica, decision=d, prompt=f"{replica}{d}") for d, r in enumerate(rewards)]
    for turn in turns:
        turn.keys = replace(turn.keys, phase="bid")
    return turns


@pytest.mark.parametrize("rule", ["mean", "leave_one_out"])
def test_a_phase_that_comes_again_is_compared_with_other_episodes_only(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, rule: str
) -> None:
    """One episode bids twice and earns 1 and then 2, so the returns from there are 3 and 2. The other bids once, for 3.
    Each bid of the first is compared only with the 3: its advantages are 3 − 3 and 2 − 2½. The 3 is compared with both:
    3 − 8/3."""
    twice, once = line(make_turn, [1.0, 2.0], 0), line(make_turn, [3.0], 1)
    custom(plan=FLAT, grouping=["task", "role", "phase"], credit=rule).credit(
        [make_episode(twice), make_episode(once)], given
    )
    found = [given.advantage(t) for t in (*twice, *once)]
    by_hand = {"mean": [0.0, -0.5, 3 - 8 / 3], "leave_one_out": [0.0, -1.0, 3 - 2.5]}[rule]
    assert found == pytest.approx(by_hand, abs=1e-12)


def test_the_baseline_does_not_bend_the_gradient(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    """A role bids 0 or 1 twice in the same phase and earns both bids at the end. Its policy is a fair coin. Over all
    pairs of episodes, the mean of advantage × score of the first bid is the gradient of the return, Var(bid) = ¼."""
    total = 0.0
    outcomes = list(itertools.product((0.0, 1.0), repeat=4))
    for a, b, c, d in outcomes:
        lines = [line(make_turn, [0.0, a + b], 0), line(make_turn, [0.0, c + d], 1)]
        given = Credit()
        algorithm = custom(plan=FLAT, grouping=["task", "role", "phase"], credit="leave_one_out")
        algorithm.credit([make_episode(turns) for turns in lines], given)
        total += (given.advantage(lines[0][0]) or 0.0) * (a - 0.5)  # d log π / d logit of a fair coin
    assert total / len(outcomes) == pytest.approx(0.25, abs=len(outcomes) * math.ulp(1.0))

"""DAPO drops groups that teach nothing, plays other tasks instead, and leaves truncated replies out of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from interplay.algorithms.dapo import DAPO
from interplay.config import RewardSection, validate
from interplay.types import Credit, Cut, Episode, Rewards, Status, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]


def dapo(**settings: Any) -> DAPO:
    return DAPO(validate(DAPO.Settings, settings, prefix="algorithm"), RewardSection())


def group(make_turn: MakeTurn, make_episode: MakeEpisode, returns: list[float], task: str) -> list[Episode]:
    return [make_episode([make_turn("X", r, task=task, replica=i)]) for i, r in enumerate(returns)]


def test_a_reply_that_the_limit_cut_off_is_left_out_of_the_loss(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Its return still counts in the mean of the group: 1, 0, 0, and the last reply is truncated."""
    episodes = group(make_turn, make_episode, [1.0, 0.0, 0.0], "a")
    turns = [e.turns[0] for e in episodes]
    turns[2].status = Status.LENGTH
    metrics = dapo(scale=False).credit(episodes, given)
    assert [given.advantage(t) for t in turns] == [pytest.approx(2 / 3), pytest.approx(-1 / 3), None]
    assert metrics["credit/turns_cut_off"] == 1
    kept = Credit()
    dapo(scale=False, overlong_filter=False).credit(episodes, kept)
    assert kept.advantage(turns[2]) == pytest.approx(-1 / 3)


def test_an_episode_that_a_limit_cut_off_is_left_out_whole(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    episodes = group(make_turn, make_episode, [1.0, 0.0], "a")
    episodes[1].cut = Cut((), Rewards())
    dapo(scale=False).credit(episodes, given)
    assert [given.advantage(e.turns[0]) for e in episodes] == [0.5, None]


def test_a_group_teaches_where_the_environment_paid_differently(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    """Penalties alone make no difference, because the paper compares accuracies."""
    algorithm = dapo(overlong={"length": 4, "margin": 4})
    tied, apart = (group(make_turn, make_episode, r, t) for t, r in (("a", [1.0, 1.0]), ("b", [1.0, 0.0])))
    assert algorithm.teaches(apart) and not algorithm.teaches(tied) and not algorithm.teaches(apart[:1])
    tied[0].turns[0].rewards += Rewards.process("overlong", {"X": -1.0})
    assert not algorithm.teaches(tied)
    metrics = algorithm.credit([*tied, *apart], given)
    assert [given.advantage(e.turns[0]) is None for e in (*tied, *apart)] == [True, True, False, False]
    assert metrics["credit/groups_dropped"] == 1


def test_one_role_that_differs_is_enough(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    """X always earns 1, O earns once 1 and once 0: the task is kept, and X's turns are not trained."""
    episodes = [
        make_episode([make_turn("X", 1.0, replica=i), make_turn("O", float(i), replica=i, decision=1, prompt="q")])
        for i in range(2)
    ]
    algorithm = dapo()
    assert algorithm.teaches(episodes)
    algorithm.credit(episodes, given)
    assert [given.advantage(t) is None for e in episodes for t in e.turns] == [True, False, True, False]


def test_other_algorithms_ask_for_no_more(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    from interplay.algorithms.grpo import GRPO

    grpo = GRPO(GRPO.Settings(), RewardSection())
    assert grpo.resample == 0 and grpo.teaches(group(make_turn, make_episode, [1.0, 1.0], "a"))

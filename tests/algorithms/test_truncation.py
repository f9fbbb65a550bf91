"""An episode that a limit cut off has not ended: a critic's value replaces what would have followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from interplay.algorithms import credit
from interplay.algorithms.ppo import PPO
from interplay.algorithms.replay import Replay, Trajectory, steps
from interplay.config import RewardSection, validate
from interplay.types import Credit, Cut, Episode, Rewards, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]


def ppo(**settings: Any) -> PPO:
    return PPO(validate(PPO.Settings, settings, prefix="algorithm"), RewardSection(gamma=0.5))


def cut(episode: Episode, due: tuple[Turn, ...] = (), outcome: Rewards | None = None) -> Episode:
    """An episode that was cut off when `due` had to act. As in rollout, each role's last turn holds the outcome."""
    episode.truncated, episode.cut = True, Cut(due, outcome or Rewards())
    latest = {turn.role: turn for turn in episode.line()}
    for role, turn in latest.items():
        turn.rewards += episode.cut.outcome.of(role)
    return episode


@pytest.mark.parametrize("level", ["turn", "token"])
def test_ppo_bootstraps_with_the_value_of_what_was_due(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, level: str
) -> None:
    """γ ½, rewards 1 and 2, and a value of 8 for the prompt that X had to answer next: 2 + ½·8 = 6, and 1 + ½·6 = 4.
    The last turn's own value, 100, does not count, and neither does the environment's reward for stopping there."""
    line = [make_turn("X", 1.0, value=0.0), make_turn("X", 2.0, value=100.0, decision=2, prompt="q")]
    due = make_turn("X", decision=4, prompt="r", value=8.0, tokens=0)
    episode = cut(make_episode(line), (due,), Rewards.team("score", 50.0))
    ppo(level=level).credit([episode], given)
    assert [given.target(turn) for turn in line] == [4.0, 6.0]


@pytest.mark.parametrize("level", ["turn", "token"])
def test_a_role_that_was_not_due_ends_with_the_value_of_its_last_turn(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit, level: str
) -> None:
    """X had to act next. It is not known what O's last turn led to, so it is not trained. Its value, 6, is what the
    turn before it led to: 1 + ½·6."""
    line = [make_turn("O", 1.0, value=0.0), make_turn("O", 9.0, value=6.0, decision=2, prompt="q")]
    due = make_turn("X", decision=3, prompt="r", value=8.0, tokens=0)
    ppo(level=level).credit([cut(make_episode(line), (due,))], given)
    assert [given.target(turn) for turn in line] == [4.0, None]
    assert given.advantage(line[1]) is None


def test_a_role_with_one_turn_that_was_not_due_trains_nothing(
    make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit
) -> None:
    turn = make_turn("O", 1.0, value=0.0)
    ppo().credit([cut(make_episode([turn]))], given)
    assert given.advantages == {} and given.targets == {}


def test_a_finished_episode_ends_with_nothing(make_turn: MakeTurn, make_episode: MakeEpisode, given: Credit) -> None:
    turn = make_turn("X", 2.0, value=3.0)
    ppo().credit([make_episode([turn])], given)
    assert given.target(turn) == 2.0


def test_what_was_earned_in_play_leaves_out_what_came_at_the_cut(
    make_turn: MakeTurn, make_episode: MakeEpisode
) -> None:
    """Equal rewards from before the cut stay: only one record is left out, from the role's last turn."""
    one = Rewards.team("goal", 1.0)
    turns = [
        make_turn("X", rewards=one),
        make_turn("O", rewards=one, decision=1),
        make_turn("X", decision=2, prompt="q"),
    ]
    episode = cut(make_episode(turns), (), one)
    assert [len(turn.rewards.records) for turn in turns] == [1, 2, 1]
    found = credit.in_play(episode)
    assert [len(found[turn.id].records) for turn in turns] == [1, 1, 0]
    episode.cut = None
    assert credit.in_play(episode) == {turn.id: turn.rewards for turn in turns}


def test_steps_of_a_cut_episode_end_before_its_last_decision(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    """γ ½; X earns 1, 2 and 4, and the last decision is only used for its value: `ahead` is 1 + ½·2 and 2. `tail`
    discounts the value of the last decision."""
    turns = [make_turn("X", r, decision=d, prompt=str(d)) for d, r in enumerate([1.0, 2.0, 4.0])]
    episode = make_episode(turns, seats={"X": "player"})
    assert [(s.ahead, s.tail) for s in steps(episode, RewardSection(gamma=0.5))] == [(3.0, 0.0), (4.0, 0.0), (4.0, 0.0)]
    found = steps(cut(episode, (), Rewards.agent("end", {"X": 64.0})), RewardSection(gamma=0.5))
    assert [(s.ahead, s.tail) for s in found] == [(2.0, 0.25), (2.0, 0.5), (0.0, 1.0)]
    assert [s.rewards["X"] for s in found] == [1.0, 2.0, 4.0]


def test_the_last_decision_of_a_cut_episode_is_never_drawn(make_turn: MakeTurn, make_episode: MakeEpisode) -> None:
    turns = [make_turn("X", float(d), decision=d, prompt=str(d)) for d in range(3)]
    whole = steps(make_episode(turns, seats={"X": "player"}), RewardSection())
    replay = Replay(8)
    replay.add([Trajectory(whole, cut=True), Trajectory(whole[:1], cut=True)])
    drawn = replay.sample(200, seed=0)
    assert {t.step.decision for t in drawn} == {0, 1}
    assert all(t.after is not None and t.last is whole[2] for t in drawn)
    replay.add([Trajectory([replace(step, decision=10 + step.decision) for step in whole])])
    ends = {t.step.decision for t in replay.sample(200, seed=1) if t.after is None}
    assert ends == {12}
    other = Replay(8)
    other.load_state_dict(replay.state_dict())
    assert other.plays == replay.plays

"""The records that everything else is made of."""

from __future__ import annotations

import pytest

from interplay.types import Episode, Keys, Level, Message, Observation, Reward, Rewards, Task, Turn, seed_of


def turn(name: str, role: str = "X", **changes: object) -> Turn:
    keys = Keys("t", 0, "t#0", 0, role, "", "", "p")
    return Turn(name, None, role, 0, keys, "player", 0, (1,), (2,), (-0.5,), "a", **changes)  # type: ignore[arg-type]


def test_seed_of_is_a_pure_function_of_its_parts() -> None:
    """All randomness is counter-based: the same keys give the same 63 bits, in every process and on every day."""
    assert seed_of(0, "task-1", 3) == seed_of(0, "task-1", 3)
    assert len({seed_of("a", i) for i in range(1000)} | {seed_of("ab"), seed_of("a", "b"), seed_of(("a", "b"))}) == 1003
    assert all(0 <= seed_of(i) < 2**63 for i in range(1000))
    assert seed_of("interplay", 0) == 4528055326040461084  # a stored number: changing it changes every run


def test_a_role_gets_its_own_rewards_and_the_teams() -> None:
    """`of` gives a role what reaches it and nothing of another's."""
    rewards = (
        Rewards.process("format", {"X": -1.0}) + Rewards.agent("win", {"X": 1.0, "O": -1.0}) + Rewards.team("goal", 5.0)
    )
    assert [(r.name, r.level, r.value) for r in rewards.of("X")] == [
        ("format", Level.PROCESS, -1.0),
        ("win", Level.AGENT, 1.0),
        ("goal", Level.TEAM, 5.0),
    ]
    assert [(r.name, r.value) for r in rewards.of("O")] == [("win", -1.0), ("goal", 5.0)]
    assert [r.name for r in rewards.of("nobody")] == ["goal"]


def test_rewards_are_false_only_when_there_are_none() -> None:
    """A record of zero, or one never scored, is still a record."""
    assert not Rewards()
    assert Rewards.team("goal", 0.0)
    assert Rewards.team("goal", None)
    assert len((Rewards.team("a", 1.0) + Rewards()).records) == 1


def test_scaling_leaves_unscored_rewards_unscored() -> None:
    """None is not zero, whatever it is multiplied with."""
    scaled = (Rewards.agent("win", {"X": 2.0}) + Rewards.team("judge", None)).scaled(0.5)
    assert [(r.name, r.value) for r in scaled] == [("win", 1.0), ("judge", None)]


def test_the_mean_of_reward_sets_is_by_record() -> None:
    """A record that a set lacks counts as 0; one that was never scored makes the mean unknown; repeats add up."""
    first = Rewards.agent("win", {"X": 1.0}) + Rewards.team("goal", 4.0) + Rewards.team("judge", 1.0)
    second = Rewards.agent("win", {"X": -3.0}) + Rewards.agent("win", {"X": 4.0}) + Rewards.team("judge", None)
    mean = {(r.name, r.level, r.role): r.value for r in Rewards.mean([first, second], 2)}
    assert mean == {
        ("win", Level.AGENT, "X"): 1.0,  # (1 + (-3 + 4)) / 2
        ("goal", Level.TEAM, None): 2.0,
        ("judge", Level.TEAM, None): None,
    }


def test_the_line_of_play_is_what_was_kept() -> None:
    """Candidates that were not kept and turns of playouts are not part of the game that was played."""
    played, other = turn("a"), turn("b", role="O")
    turns = [played, turn("c", kept=False, candidate=1), turn("d", playout=0), other]
    episode = Episode("t#0", Task("t", "tictactoe", 1), 0, {}, turns)
    assert episode.line() == [played, other]
    assert episode.line("O") == [other]


def test_a_bots_move_is_no_model_turn() -> None:
    """Turns without sampled tokens are never trained on."""
    move = turn("a")
    move.action = ()
    assert not move.is_model and turn("a").is_model


def test_keys_pick_a_grouping() -> None:
    """A grouping is a subset of the keys, in its own order."""
    keys = Keys("task", 3, "task#3", 2, "X", "bid", "", "digest")
    assert keys.pick(("role", "task")) == ("X", "task")
    assert keys.pick(("episode", "decision", "role")) == ("task#3", 2, "X")


def test_records_that_describe_the_world_cannot_be_changed() -> None:
    """Tasks, observations, messages and rewards are shared freely between forks."""
    for record, field in [
        (Task("t", "e", 1), "seed"),
        (Message("user", "x"), "content"),
        (Observation((Message("user", "x"),)), "fresh"),
        (Reward("win", Level.AGENT, "X", 1.0), "value"),
        (Rewards(), "records"),
    ]:
        with pytest.raises(AttributeError):
            setattr(record, field, None)

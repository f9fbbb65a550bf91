"""Rewards by name and level."""

from __future__ import annotations

from interplay.types import Level, Rewards


def test_a_role_gets_its_own_rewards_and_the_teams() -> None:
    """`of` returns the rewards of a role and of the team, and nothing of another role."""
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
    """A record of zero, or one that was never scored, is still a record."""
    assert not Rewards()
    assert Rewards.team("goal", 0.0)
    assert Rewards.team("goal", None)
    assert len((Rewards.team("a", 1.0) + Rewards()).records) == 1


def test_scaling_leaves_unscored_rewards_unscored() -> None:
    """None is not zero, whatever it is multiplied by."""
    scaled = (Rewards.agent("win", {"X": 2.0}) + Rewards.team("judge", None)).scaled(0.5)
    assert [(r.name, r.value) for r in scaled] == [("win", 1.0), ("judge", None)]


def test_the_mean_of_reward_sets_is_by_record() -> None:
    """A record that is missing from a set counts as 0; a record that was never scored makes the mean unknown; repeats
    add up."""
    first = Rewards.agent("win", {"X": 1.0}) + Rewards.team("goal", 4.0) + Rewards.team("judge", 1.0)
    second = Rewards.agent("win", {"X": -3.0}) + Rewards.agent("win", {"X": 4.0}) + Rewards.team("judge", None)
    mean = {(r.name, r.level, r.role): r.value for r in Rewards.mean([first, second], 2)}
    assert mean == {
        ("win", Level.AGENT, "X"): 1.0,  # (1 + (-3 + 4)) / 2
        ("goal", Level.TEAM, None): 2.0,
        ("judge", Level.TEAM, None): None,
    }

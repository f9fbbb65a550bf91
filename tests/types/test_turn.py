"""Turns and the episodes that they make."""

from __future__ import annotations

from typing import Any

import pytest

from interplay.types import (
    Episode,
    Keys,
    Level,
    Message,
    Observation,
    Outlook,
    Reward,
    Rewards,
    Sample,
    Task,
    Turn,
)


def turn(name: str, role: str = "X", **changes: Any) -> Turn:
    sample = Sample(name, (1,), (2,), (-0.5,), (0,), "a")
    settings = {"samples": (sample,), **changes}
    return Turn(name, None, Keys("t", 0, "t#0", 3, role, "", "", "p"), "player", "a", Observation(()), **settings)


def test_the_line_of_play_is_what_was_kept() -> None:
    """Rejected candidates and turns of playouts are not part of the game that was played."""
    played, other = turn("a"), turn("b", role="O")
    turns = [played, turn("c", kept=False, candidate=1), turn("d", playout=0), other]
    episode = Episode("t#0", Task("t", "tictactoe", 1), 0, {}, turns)
    assert episode.line() == [played, other]
    assert episode.line("O") == [other]


def test_a_bots_move_is_no_model_turn() -> None:
    """Turns without sampled tokens are never trained on; those of a remote model have a text and a count."""
    bot, remote = turn("a", samples=()), turn("b", samples=(Sample("b", (), (), (), (), "hi", used=7),))
    assert turn("c").is_model and not bot.is_model and not remote.is_model
    assert (bot.sampled, remote.sampled, turn("c").sampled) == (0, 7, 1)
    assert bot.asked == remote.asked == () and turn("c").asked == (1,)


def test_a_turn_is_all_model_calls_of_a_decision() -> None:
    """The first one has the question, the last one is the action; role and decision are those of the keys."""
    call, said = (
        Sample("a", (1,), (2, 3), (0.0,) * 2, (0,) * 2, "@ask"),
        Sample("a.1", (1, 2, 3, 4), (5,), (0.0,), (0,), "yes"),
    )
    both = turn("a.1", samples=(call, said))
    assert (both.last, both.asked, both.sampled) == (said, (1,), 3)
    assert (both.role, both.decision) == ("X", 3)


def test_keys_pick_a_grouping() -> None:
    """A grouping is a subset of the keys, in its own order."""
    keys = Keys("task", 3, "task#3", 2, "X", "bid", "", "digest")
    assert keys.pick(("role", "task")) == ("X", "task")
    assert keys.pick(("episode", "decision", "role")) == ("task#3", 2, "X")


def test_records_that_describe_the_world_cannot_be_changed() -> None:
    """Tasks, observations, messages, rewards, outlooks and samples are shared freely between forks."""
    for record, field in [
        (Task("t", "e", 1), "seed"),
        (Message("user", "x"), "content"),
        (Observation((Message("user", "x"),)), "fresh"),
        (Reward("win", Level.AGENT, "X", 1.0), "value"),
        (Rewards(), "records"),
        (Outlook(), "rewards"),
        (turn("a").last, "logprobs"),
        (turn("a").keys, "prompt"),
    ]:
        with pytest.raises(AttributeError):
            setattr(record, field, None)

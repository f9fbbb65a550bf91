"""Turns and episodes built by hand, for tests of arithmetic over records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from interplay.types import Credit, Episode, Keys, Observation, Outlook, Rewards, Sample, Task, Turn
from interplay.types.occupant import parse

MakeTurn = Callable[..., Turn]


@pytest.fixture
def given() -> Credit:
    """What a step knows about the turns that `make_turn` made; at first only their given values."""
    return Credit()


@pytest.fixture
def make_turn(given: Credit) -> MakeTurn:
    """`make_turn("X", 1.0)`: a model turn that earned 1 at agent level. Ids are consecutive numbers; `value` goes to
    `given`."""
    made = 0

    def make(
        role: str = "X", reward: float | None = None, *, task: str = "t", replica: int = 0, decision: int = 0,
        prompt: str = "p", tokens: int = 1, outlook: Rewards | float | None = None, value: float | None = None,
        candidate: int = 0, kept: bool = True, playout: int | None = None, rewards: Rewards | None = None,
    ) -> Turn:  # fmt: skip
        nonlocal made
        made += 1
        episode = f"{task}#{replica}"
        if rewards is None:
            rewards = Rewards() if reward is None else Rewards.agent("win", {role: reward})
        if isinstance(outlook, float):
            outlook = Rewards.agent("win", {role: outlook})
        name = f"{episode}/{made}"
        if value is not None:
            given.values[name] = (value,)
        sample = Sample(name, (1, 2), (3,) * tokens, (-1.0,) * tokens, (0,) * tokens, "a")
        return Turn(
            name, None, Keys(task, replica, episode, decision, role, "", "", prompt), "player", "a", Observation(()),
            (sample,), candidate=candidate, kept=kept, playout=playout, rewards=rewards,
            outlook=None if outlook is None else Outlook(outlook),
        )  # fmt: skip

    return make


@pytest.fixture
def make_episode() -> Callable[..., Episode]:
    """The episode that these turns belong to."""

    def make(turns: Sequence[Turn], env: str = "tictactoe", seats: Mapping[str, str] | None = None) -> Episode:
        keys = turns[0].keys
        task = Task(keys.task, env, 0)
        seated = {role: parse(who) for role, who in (seats or {"X": "player", "O": "player"}).items()}
        return Episode(keys.episode, task, keys.replica, seated, list(turns))

    return make

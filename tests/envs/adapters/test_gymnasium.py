"""The Gymnasium adapter, compared with Gymnasium itself."""

from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest

from interplay import envs
from interplay.envs.adapters.spaces import choices, told, uncoloured
from interplay.envs.check import check
from interplay.envs.env import Env
from interplay.errors import ConfigError


def made(game: str, seed: int = 0, **options: object) -> Env:
    return envs.make(envs.sample_task(f"gymnasium:{game}", options, index=seed))


@pytest.mark.parametrize(
    "game",
    ["FrozenLake-v1", "Blackjack-v1", *(pytest.param(g, marks=pytest.mark.slow) for g in ("Taxi-v4", "CartPole-v1"))],
)
def test_conformance(game: str) -> None:
    options = {"max_steps": 50}
    assert [f for f in check(f"gymnasium:{game}", options, episodes=1) if not f.passed] == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("game", ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1", "Blackjack-v1"])
def test_the_same_actions_give_the_same_rewards(game: str, seed: int) -> None:
    """Whole episodes beside the real environment with the same seed: mask, rewards and end, step by step."""
    env, theirs, rng = made(game, seed, max_steps=60), gymnasium.make(game), random.Random(seed)
    _, info = theirs.reset(seed=env.task.seed % 2**31)
    names = list(env.choices)  # type: ignore[attr-defined]
    while seen := env.observe():
        legal = seen["player"].legal
        mask = info.get("action_mask", np.ones(len(names)))
        assert list(legal) == [name for name, open_ in zip(names, mask, strict=True) if open_]
        move = rng.choice(legal)
        (paid,) = env.step({"player": move})
        _, reward, ended, cut, info = theirs.step(names.index(move))
        assert paid.value == reward and env.over == (ended or cut)  # type: ignore[attr-defined]


def test_a_lake_without_slipping_is_crossed() -> None:
    env, paid = made("FrozenLake-v1", arguments={"is_slippery": False}), 0.0
    for move in ("down", "down", "right", "right", "down", "right"):
        paid += sum(r.value or 0.0 for r in env.step({"player": move}))
    assert paid == 1.0 and not env.observe()


def test_an_illegal_reply_costs_and_counts_and_changes_nothing() -> None:
    env = made("FrozenLake-v1", max_steps=3)
    before = env.observe()
    assert [(r.name, r.value) for r in env.step({"player": "jump"})] == [("illegal", -1.0)]
    assert env.observe() == before
    env.step({"player": "jump"})
    env.step({"player": "jump"})
    assert not env.observe() and not env.outcome()


def test_colours_are_told() -> None:
    """The places of the taxi, the passenger and the goal are shown only by colour."""
    assert uncoloured("ab\n\x1b[41mc\x1b[0md") == "ab\ncd\nColoured: red 'c' in row 2, column 1."
    text = made("Taxi-v4").observe()["player"].messages[-1].content
    assert "\x1b" not in text and "yellow" in text and "magenta" in text


def test_arrays_are_told() -> None:
    assert told({"a": np.array([1.5, 2.0]), "b": (3, "x")}) == "a: 1.5 2\nb: 3, x"
    assert told(np.eye(2, dtype=int)) == "\n1 0\n0 1"
    planes = np.zeros((2, 2, 2), dtype=int)
    planes[0, 0, 0] = planes[1, 1, 1] = 1
    assert told(planes) == "\na .\n. b"
    assert told(np.array([0] * 9 + [1])) == "ones at 9"
    with pytest.raises(ConfigError, match="cannot be shown as text"):
        told(np.zeros((100, 100, 3)))


def test_spaces_are_listed_or_refused() -> None:
    spaces = gymnasium.spaces
    assert choices(spaces.Discrete(3, start=1), ()) == {"1": 1, "2": 2, "3": 3}
    assert choices(spaces.Discrete(2), ("left", "right")) == {"left": 0, "right": 1}
    assert list(choices(spaces.MultiDiscrete([2, 2]), ()) or ()) == ["0 0", "0 1", "1 0", "1 1"]
    assert choices(spaces.Text(5), ()) is None
    with pytest.raises(ConfigError, match="cannot be listed"):
        made("Pendulum-v1")
    with pytest.raises(ConfigError, match=r"env.actions has 1 names; expected 4"):
        made("FrozenLake-v1", actions=["x"])
    with pytest.raises(ConfigError, match="cannot be made"):
        made("FrozenLake-v1", arguments={"slippery": False})

"""The random numbers that VDN, QMIX and MADDPG draw themselves depend on the recipe's seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from interplay.algorithms.fitted import FittedCredit
from interplay.config import parse
from interplay.rollout.resolve import resolve
from interplay.types import Episode, Rewards, Turn

MakeTurn = Callable[..., Turn]
MakeEpisode = Callable[..., Episode]


def resolved(name: str, seed: int) -> FittedCredit:
    """The algorithm of a recipe with this seed."""
    recipe = {
        "name": "test",
        "seed": seed,
        "env": {"name": "matrix", "game": "stag_hunt"},
        "policies": {"player": {"base": "tiny"}},
        "seats": "player",
        "algorithm": {"name": name, "updates": 2, "batch": 2},
    }
    made = resolve(parse(recipe)).algorithm
    assert isinstance(made, FittedCredit)
    made.roles = ["X", "O"]
    return made


def joints(make_turn: MakeTurn, make_episode: MakeEpisode) -> list[Episode]:
    """Sixteen episodes of one joint decision, all with different rewards."""
    out = []
    for i, words in enumerate(itertools.product("lr", repeat=2)):
        for k in range(4):
            replica = 4 * i + k
            turns = [make_turn(role, rewards=Rewards.team("goal", float(replica)), replica=replica) for role in "XO"]
            for turn, word in zip(turns, words, strict=True):
                turn.text, turn.state = word, "start"
            out.append(make_episode(turns))
    return out


@pytest.mark.parametrize("name", ["vdn", "qmix", "maddpg"])
def test_networks_begin_as_the_recipes_seed_says(name: str) -> None:
    """Three seeds give three initialisations, and the same seed gives the same one."""
    made: list[Any] = []
    for seed in (0, 0, 1):
        algorithm = resolved(name, seed)
        module = algorithm.network(algorithm.names()[0]).module
        made.append([p.tolist() for p in module.parameters()])
    assert made[0] == made[1]
    assert made[0] != made[2]


@pytest.mark.parametrize("name", ["vdn", "qmix", "maddpg"])
def test_replay_is_drawn_as_the_recipes_seed_says(
    make_turn: MakeTurn, make_episode: MakeEpisode, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Different seeds fit a network to different decisions; two runs with one seed use the same ones."""
    episodes = joints(make_turn, make_episode)
    drawn: list[list[float]] = []
    for seed in (0, 0, 1):
        algorithm = resolved(name, seed)
        seen: list[float] = []
        inner = algorithm.replay.sample

        def sample(count: int, by: int, inner: Any = inner, seen: list[float] = seen) -> Any:
            found = inner(count, by)
            seen.extend(step.team for step, *_ in found)
            return found

        monkeypatch.setattr(algorithm.replay, "sample", sample)
        algorithm.update(episodes)
        drawn.append(seen)
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_the_roles_of_maddpg_have_critics_of_their_own() -> None:
    """With one initialisation for all roles, their first gradients would depend on each other."""
    algorithm = resolved("maddpg", 0)
    one, other = ([p.tolist() for p in algorithm.network(role).module.parameters()] for role in ("X", "O"))
    assert one != other

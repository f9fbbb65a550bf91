"""Enumerates all random outcomes with their probabilities, for exact evaluation of small games.

An environment draws random numbers only from `self.rng`. Here this generator is replaced by one whose draws are given,
and the game is played once for each possible sequence of draws. The author of the environment has to do nothing for
this. Only whole-number draws can be enumerated (`choice`, `sample`, `randrange`, `shuffle`), and each should be as
small as the rules allow: a shuffled deck of 52 cards has too many orders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from interplay.envs.env import Env, lookup
from interplay.errors import EnvError
from interplay.types import Rewards, Role, Task

LIMIT = 100_000  # outcomes that one draw, or one sequence of draws, may have; more would take too long
T = TypeVar("T")


class _Dice(random.Random):
    """Draws the numbers of `plan`, then always 0, and records how many outcomes every draw had."""

    def __init__(self) -> None:
        super().__init__(0)
        self.plan: list[int] = []
        self.faces: list[int] = []

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Does nothing: `plan` decides every draw, and seeding would take longer than most steps of a game."""

    def _randbelow(self, n: int) -> int:
        self.faces.append(n)
        i = len(self.faces) - 1
        return self.plan[i] if i < len(self.plan) else 0

    def random(self) -> float:
        self._refuse()

    def getrandbits(self, k: int, /) -> int:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EnvError(
            "this environment draws real numbers or bits, so its random outcomes cannot be enumerated; expected only "
            "draws of whole numbers, such as rng.choice or rng.randrange."
        )


def _every(play: Callable[[_Dice], T]) -> Iterator[tuple[float, T]]:
    """Call `play` with every possible sequence of draws, and yield each result with its probability."""
    plan: list[int] = []
    for _ in range(LIMIT):
        dice = _Dice()  # without an argument, because random.Random would take it as a seed
        dice.plan = plan
        result, chance = play(dice), 1.0
        for n in dice.faces:
            chance /= n
        yield chance, result
        fell = (plan + [0] * len(dice.faces))[: len(dice.faces)]
        while fell and fell[-1] + 1 == dice.faces[len(fell) - 1]:
            fell.pop()
        if not fell:
            return
        plan = [*fell[:-1], fell[-1] + 1]
    raise EnvError(f"there are more than {LIMIT:,} random outcomes here; expected a smaller game.")


def starts(task: Task) -> Iterator[tuple[float, Env]]:
    """Every possible start of the environment of `task`, for any seed."""
    cls = lookup(task.env).played_by(task.data)

    def begin(dice: _Dice) -> Env:
        loaded: dict[str, Any] = {"dice": staticmethod(lambda seed: dice)}
        return _unloaded(type(cls.__name__, (cls,), loaded)(task))

    return _every(begin)


def steps(env: Env, actions: Mapping[Role, str]) -> Iterator[tuple[float, tuple[Env, Rewards]]]:
    """Every possible result of `env.step(actions)`; `env` itself is not changed."""

    def step(dice: _Dice) -> tuple[Env, Rewards]:
        twin = env.fork(0)
        twin.rng = dice
        rewards = twin.step(dict(actions))
        return _unloaded(twin), rewards

    return _every(step)


def _unloaded(env: Env) -> Env:
    env.rng = random.Random(0)
    return env

"""Every way that chance can go, with its probability: for exact evaluation of small games.

An environment draws from `self.rng` only, so putting loaded dice there and playing once for each way they can fall
enumerates its chance without a word from its author. Only whole-number draws can be listed (`choice`, `sample`,
`randrange`, `shuffle`), and each should be as small as the rules allow: a shuffled deck of 52 has too many orders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from interplay.envs.env import Env, lookup
from interplay.errors import EnvError
from interplay.types import Rewards, Role, Task

LIMIT = 100_000  # ways one draw, or one run of draws, may go; more would look like a hang
T = TypeVar("T")


class _Dice(random.Random):
    """Falls as `plan` says, then always on 0, noting how many faces every throw had."""

    def __init__(self) -> None:
        super().__init__(0)
        self.plan: list[int] = []
        self.faces: list[int] = []

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Does nothing: the plan says how the dice fall, and seeding takes longer than most steps of a game."""

    def _randbelow(self, n: int) -> int:
        self.faces.append(n)
        i = len(self.faces) - 1
        return self.plan[i] if i < len(self.plan) else 0

    def random(self) -> float:
        self._refuse()

    def getrandbits(self, k: int, /) -> int:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EnvError("this environment draws real numbers or bits, so that its chance cannot be listed.")


def _every(play: Callable[[_Dice], T]) -> Iterator[tuple[float, T]]:
    """`play` with every way the dice can fall, and the probability of each: the last throw that can turns first."""
    plan: list[int] = []
    for _ in range(LIMIT):
        dice = _Dice()  # random.Random would take an argument for a seed
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
    raise EnvError(f"chance can go more than {LIMIT:,} ways here; expected a smaller game.")


def starts(task: Task) -> Iterator[tuple[float, Env]]:
    """Every way the environment of `task` can begin, whatever its seed says."""
    cls = lookup(task.env).played_by(task.data)

    def begin(dice: _Dice) -> Env:
        loaded: dict[str, Any] = {"dice": staticmethod(lambda seed: dice)}
        return _unloaded(type(cls.__name__, (cls,), loaded)(task))

    return _every(begin)


def steps(env: Env, actions: Mapping[Role, str]) -> Iterator[tuple[float, tuple[Env, Rewards]]]:
    """Every way `env.step(actions)` can go; `env` itself is not changed."""

    def step(dice: _Dice) -> tuple[Env, Rewards]:
        twin = env.fork(0)
        twin.rng = dice
        rewards = twin.step(dict(actions))
        return _unloaded(twin), rewards

    return _every(step)


def _unloaded(env: Env) -> Env:
    env.rng = random.Random(0)
    return env

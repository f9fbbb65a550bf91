"""Scripted players: opponents, yardsticks and teachers. Bots may read the environment and are never trained.

A seat `bot:minimax` is `make_bot("minimax", env_name)`. All chance comes from the `rng` handed to `act`.
"""

from __future__ import annotations

import json
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn, TypeVar

from interplay.envs.env import Env, lookup
from interplay.errors import ConfigError, EnvError, did_you_mean
from interplay.types import Level, Rewards, Role


class Bot(ABC):
    """Subclass, write `act`, `@register_bot("name")`; the first line of the docstring is its description."""

    def __init__(self, env_name: str) -> None:
        self.env_name = env_name

    @abstractmethod
    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        """The action of `role`, which must be one of those that act now. `env` is not changed."""

    def suits(self, env: Env) -> None:
        """Raise if this bot cannot play `env`, a fresh environment: by default, if it lists no legal actions."""
        for role in env.observe():
            _legal(env, role)


B = TypeVar("B", bound=type[Bot])
_BOTS: dict[str, type[Bot]] = {}


def register_bot(name: str) -> Callable[[B], B]:
    """Class decorator: makes the bot known by `name`."""

    def add(cls: B) -> B:
        _BOTS[name] = cls
        return cls

    return add


def make_bot(name: str, env_name: str) -> Bot:
    """The bot `name`, to play environment `env_name`."""
    lookup(env_name)
    if name not in _BOTS:
        raise ConfigError(f"'{name}' is not a bot; {did_you_mean(name, _BOTS)}")
    return _BOTS[name](env_name)


def known_bots() -> dict[str, str]:
    """Name and one line of description of every bot."""
    return {name: (cls.__doc__ or "").strip().split("\n")[0] for name, cls in sorted(_BOTS.items())}


def _legal(env: Env, role: Role) -> tuple[str, ...]:
    observation = env.observe().get(role)
    if observation is None:
        raise EnvError(f"a bot was asked to act as '{role}', who is not to act in '{env.task.env}' now.")
    if not observation.legal:
        raise EnvError(
            f"environment '{env.task.env}' lists no legal actions for '{role}', and a bot can only choose from a list; "
            "expected Observation.legal, or no bot in this seat."
        )
    return observation.legal


@register_bot("random")
class RandomBot(Bot):
    """Uniform over the legal actions."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        return rng.choice(_legal(env, role))


@register_bot("first")
class FirstBot(Bot):
    """Always the first legal action."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        return _legal(env, role)[0]


# What each position is worth to the first role, by state(), for one environment and its options: solved once
# per process however many bots sit in however many episodes.
_SOLVED: dict[tuple[str, str], dict[str, float]] = {}


@register_bot("minimax")
class MinimaxBot(Bot):
    """Perfect play in small two-player zero-sum games without chance or secrets; any of the best moves alike.

    It needs `state()` to determine all that can follow. Value counts agent-level rewards, from steps and outcome.
    """

    LIMIT = 100_000  # positions held in memory; a larger game would look like a hang

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        _legal(env, role)
        return rng.choice(self.best(env))

    def suits(self, env: Env) -> None:
        super().suits(env)
        if len(env.roles) != 2:
            self._refuse(f"has {len(env.roles)} roles; expected two")
        self._to_move(env)
        rng = random.Random(0)
        if any(env.redeal(role, rng).state() != env.state() for role in env.roles for _ in range(8)):
            self._refuse("has hidden information; expected a game in which both see everything")

    def best(self, env: Env) -> list[str]:
        """The optimal moves of the role to act."""
        key = (env.task.env, json.dumps(dict(env.task.data), sort_keys=True, default=repr))
        if key not in _SOLVED:
            self.suits(env)
        try:
            values = self._values(env, _SOLVED.setdefault(key, {}))
        except RecursionError:
            self._refuse("can go on for too many moves, or come back to a position; expected a short game")
        top = max(values.values())
        return [move for move, value in values.items() if math.isclose(value, top, abs_tol=1e-9)]

    def _values(self, env: Env, solved: dict[str, float]) -> dict[str, float]:
        """What each legal move is worth to the role that makes it."""
        role = self._to_move(env)
        if role is None:
            raise EnvError(f"a bot was asked for a move in '{env.task.env}' after the end.")
        sign = 1.0 if role == env.roles[0] else -1.0
        values = {}
        for move in _legal(env, role):
            after = env.fork()
            gained = self._first_gains(after, after.step({role: move}))
            values[move] = sign * (gained + self._value(after, solved))
        return values

    def _value(self, env: Env, solved: dict[str, float]) -> float:
        """What the rest of the game is worth to the first role."""
        state = env.state()
        if state in solved:
            return solved[state]
        if len(solved) >= self.LIMIT:
            self._refuse(f"has more than {self.LIMIT:,} positions; expected a smaller game")
        role = self._to_move(env)
        if role is None:
            value = self._first_gains(env, env.outcome())
        else:
            value = max(self._values(env, solved).values()) * (1.0 if role == env.roles[0] else -1.0)
        solved[state] = value
        return value

    def _to_move(self, env: Env) -> Role | None:
        acting = env.observe()
        if len(acting) > 1:
            self._refuse(f"has simultaneous moves ({', '.join(acting)} act at once); expected turns")
        return next(iter(acting), None)

    def _first_gains(self, env: Env, rewards: Rewards) -> float:
        gains = dict.fromkeys(env.roles, 0.0)
        for r in rewards:
            if r.level is Level.AGENT and r.role is not None and r.value is not None:
                gains[r.role] += r.value
        if not math.isclose(sum(gains.values()), 0.0, abs_tol=1e-9):
            self._refuse(f"is not zero-sum (it gave {gains}); expected rewards that cancel")
        return gains[env.roles[0]]

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"bot 'minimax' cannot play '{self.env_name}', which {why}; bot 'random' plays anything.")


from interplay.agents import solvers as _solvers  # noqa: E402, F401  (registers `solver`, which needs what is above)

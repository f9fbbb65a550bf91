"""Perfect play by searching the whole game tree."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interplay.agents.bots.bot import Bot, legal_actions, register_bot
from interplay.envs import zero_sum
from interplay.envs.env import Env, outcome_of
from interplay.errors import ConfigError, EnvError
from interplay.types import Role


@dataclass
class SolvedGame:
    """What is known of a game, by state(): the value of each position for the first role, and the optimal moves in
    positions in which a bot had to move."""

    values: dict[str, float] = field(default_factory=dict)
    best: dict[str, list[str]] = field(default_factory=dict)


# For each environment and its options. Every game is solved once per process and shared by all bots and episodes.
_SOLVED: dict[tuple[str, str], SolvedGame] = {}


@register_bot("minimax")
class MinimaxBot(Bot):
    """Perfect play in small two-player zero-sum games; `minimax:0.3` makes 30% of its moves at random; ties are random.

    The game must have no chance and no hidden information, and its `state()` must determine all that can follow. The
    value of a position is the sum of agent-level rewards, from steps and outcome.
    """

    takes = "the share of random moves, from 0 to 1"
    LIMIT = 100_000  # positions held in memory; a larger game would take so long that it would seem to hang

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        try:
            self.noise = float(setting or 0)
        except ValueError:
            self.noise = math.nan
        if not 0 <= self.noise <= 1:
            raise ConfigError(f"bot 'minimax:{setting}' has a wrong share of random moves; expected 0 to 1.")
        self._options: dict[str, Any] | None = None
        self._key = (env_name, "")  # of the solved game, for these options

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        legal = legal_actions(env, role)
        at_random = self.noise > 0 and rng.random() < self.noise
        return rng.choice(legal if at_random else self.best(env))

    def odds(self, env: Env, role: Role) -> Mapping[str, float]:
        legal, best = legal_actions(env, role), self.best(env)
        odds = {m: self.noise / len(legal) + (m in best) * (1 - self.noise) / len(best) for m in legal}
        return {move: p for move, p in odds.items() if p}

    def suits(self, env: Env) -> None:
        super().suits(env)
        if len(env.roles) != 2:
            self.refuse(f"has {len(env.roles)} roles; expected two")
        self._to_move(env)
        rng = random.Random(0)
        if any(env.redeal(role, rng).state() != env.state() for role in env.roles for _ in range(8)):
            self.refuse("has hidden information; expected a game in which both see everything")

    def best(self, env: Env) -> list[str]:
        """The optimal moves of the role that acts now."""
        if self._options != env.task.data:  # a bot plays many games with the same options
            self._options = dict(env.task.data)
            self._key = env.task.env, json.dumps(self._options, sort_keys=True, default=repr)
        if self._key not in _SOLVED:
            self.suits(env)
        solved, state = _SOLVED.setdefault(self._key, SolvedGame()), env.state()
        if state not in solved.best:
            try:
                values = self._values(env, solved.values)
            except RecursionError:
                self.refuse("can take too many moves, or return to a position; expected a short game")
            top = max(values.values())
            solved.best[state] = [m for m, value in values.items() if math.isclose(value, top, abs_tol=1e-9)]
        return list(solved.best[state])

    def _values(self, env: Env, solved: dict[str, float]) -> dict[str, float]:
        """The value of each legal move for the role that makes it."""
        role = self._to_move(env)
        if role is None:
            raise EnvError(f"a bot was asked for a move in '{env.task.env}', but the game has ended.")
        sign = 1.0 if role == env.roles[0] else -1.0
        values = {}
        for move in legal_actions(env, role):
            after = env.fork()
            gained = zero_sum.gain(after.roles, after.step({role: move}), self.refuse)
            values[move] = sign * (gained + self._value(after, solved))
        return values

    def _value(self, env: Env, solved: dict[str, float]) -> float:
        """The value of the rest of the game for the first role."""
        state = env.state()
        if state in solved:
            return solved[state]
        if len(solved) >= self.LIMIT:
            self.refuse(f"has more than {self.LIMIT:,} positions; expected a smaller game")
        role = self._to_move(env)
        if role is None:
            value = zero_sum.gain(env.roles, outcome_of(env), self.refuse)
        else:
            value = max(self._values(env, solved).values()) * (1.0 if role == env.roles[0] else -1.0)
        solved[state] = value
        return value

    def _to_move(self, env: Env) -> Role | None:
        acting = env.observe()
        if len(acting) > 1:
            self.refuse(f"has simultaneous moves ({', '.join(acting)} act at once); expected turns")
        return next(iter(acting), None)

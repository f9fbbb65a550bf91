"""Plays a game or a task, for tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from interplay.agents.bots import make_bot
from interplay.envs import Env, make, sample_task
from interplay.types import Observation, Role


def earned(
    name: str, tasks: int, say: Callable[[Any, str, Observation], str], options: dict[str, Any], split: str
) -> list[float]:
    """What each task's team earned at the end, if every role says what `say` returns."""
    out = []
    for i in range(tasks):
        env = make(sample_task(name, options, split, i))
        while seen := env.observe():
            env.step({role: say(env, role, o) for role, o in seen.items()})
        out.append(sum(r.value or 0.0 for r in env.outcome()))
    return out


def expert(env: Env, role: str, o: Observation) -> str:
    """What the task's own script says."""
    return make_bot("expert", env.task.env).act(env, role, random.Random(0))


def play(env: Env, *moves: int | str) -> Env:
    """Plays these moves, each by the role that must move."""
    for move in moves:
        (role,) = env.observe()
        env.step({role: str(move)})
    return env


def wins(env: Env) -> dict[Role | None, float | None]:
    return {r.role: r.value for r in env.outcome()}

"""Checks whether a row's own gold answer passes its checker. `prepare` leaves out rows whose gold answer fails."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from interplay.envs.env import make, outcome_of, sample_task
from interplay.envs.tasks.data import DataEnv, DataRow
from interplay.envs.tasks.problems import Problem
from interplay.errors import ConfigError
from interplay.execution.programs import Bench


@dataclass(frozen=True)
class _Player:
    """The environment that checks rows of a kind, and what is said in it before the answer."""

    env: str
    options: Mapping[str, Any]
    before: tuple[str, ...] = ()


_PLAYERS = {
    "math": _Player("math", {"team": "single"}),
    "inference": _Player("nli", {}),
    "code": _Player("code", {"team": "single"}),
    "sql": _Player("sql", {"team": "single", "attempts": 1}),
    "search": _Player("search", {"team": "single"}, ("done",)),  # only the answer is checked, not the search
    "hardware": _Player("hardware", {"team": "single"}),
    "tables": _Player("tables", {"team": "single"}),
    "law": _Player("science", {"team": "single", "budget": 3}),
}


class Gold(StrEnum):
    """The result of checking a row's gold answer."""

    PASSES = "passes"
    FAILS = "gold_answer_fails"
    NO_BUG = "bug_that_changes_nothing"
    UNKNOWN = "no_gold_answer"


def check_rows(kind: str, rows: Sequence[DataRow], folder: Path) -> list[Gold]:
    """Check every row's gold answer by playing it in the environment of its kind. `folder` is a prepared folder."""
    if kind not in _PLAYERS:
        return [Gold.UNKNOWN] * len(rows)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda row: _checked(kind, row, str(folder)), rows))


def _checked(kind: str, row: DataRow, folder: str) -> Gold:
    player = _PLAYERS[kind]
    task = _task(kind)
    env = make(replace(task, data={**task.data, "data": folder, "row": row}))
    assert isinstance(env, DataEnv)
    earned: dict[str, float | None] = {}
    said = iter(player.before)
    try:
        while seen := env.observe():
            (role,) = seen
            earned |= {r.name: r.value for r in env.step({role: next(said, None) or env.script(role)})}
    except ConfigError:  # the row has no gold answer that can be played
        return Gold.UNKNOWN
    except SyntaxError:  # its tests, or code that they need, are not Python
        return Gold.FAILS
    earned |= {r.name: r.value for r in outcome_of(env)}
    if earned[env.success] != 1.0:
        return Gold.FAILS
    return Gold.NO_BUG if kind == "code" and _harmless(row) else Gold.PASSES


def _harmless(row: DataRow) -> bool:
    """Whether a planted bug passes all tests."""
    problem = Problem.of(row)
    return bool(problem.buggy) and problem.try_(Bench(), problem.buggy).solved


@lru_cache(maxsize=16)
def _task(kind: str) -> Any:
    return sample_task(_PLAYERS[kind].env, _PLAYERS[kind].options)

"""Plays an outside program in the tests, and looks at what became of it."""

from __future__ import annotations

from typing import Any

from interplay import envs
from interplay.envs.programs import process
from interplay.envs.programs.program import OutsideProgram
from interplay.types import Task


def played(task: Task, said: str = "hello") -> OutsideProgram:
    env = envs.make(task)
    assert isinstance(env, OutsideProgram)
    while seen := env.observe():
        env.step(dict.fromkeys(seen, said))
    return env


def result(env: OutsideProgram) -> Any:
    assert env._run is not None
    return env._run.result


def newest() -> process.ProgramWorker:
    *_, worker = process._workers.values()
    return worker

"""Plays an outside program in the tests, and looks at what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interplay import envs
from interplay.envs.programs import process
from interplay.envs.programs.gateway import HttpRun
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


@contextmanager
def hurried(seconds: float = 0.5) -> Iterator[None]:
    """A run that is answered meanwhile may take only this long until it asks again or ends. Until its first call it has
    the usual time, because a busy machine may need long to start it."""
    answer = HttpRun.answer

    def answered(run: HttpRun, *given: Any) -> None:
        run.seconds = seconds
        answer(run, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HttpRun, "answer", answered)
        yield

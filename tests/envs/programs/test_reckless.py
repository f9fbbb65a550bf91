"""A program may run what a model wrote. Whatever it does, it ends its own run only, and it gets a score."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import program_player
import pytest
from program_player import newest, result

from interplay import envs
from interplay.agents.memory import _canonical
from interplay.envs.programs import process
from interplay.envs.programs.program import OutsideProgram
from interplay.envs.programs.talk import messages_of
from interplay.errors import EnvError
from interplay.execution.worker import sweep
from interplay.types import Task

TEAMS = Path(__file__).parent / "teams"


def task_of(function: str = "", **options: Any) -> Task:
    how = {"function": f"reckless:{function}"} if function else {}
    return envs.sample_task("program", {"reward": "commands:length", "roles": ["planner"], **how, **options})


def played(task: Task, said: str = "hello") -> OutsideProgram:
    try:
        return program_player.played(task, said)
    except EnvError as error:
        pytest.fail(f"a program became a failure of the machinery: {error}")


def test_folders_that_are_deeper_than_python_recurses_are_removed() -> None:
    task = task_of("nests")
    assert result(played(task)) == "nested"
    first = newest()
    assert result(played(task)) == "nested" and newest() is first and first.alive


def test_a_killed_worker_leaves_a_folder_that_the_next_one_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked while the worker lives, and only then kept."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(process, "_workers", {})
    played(task_of("nests", program={"environment": {"X": "2"}}))
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    sweep.__wrapped__(str(tmp_path))
    assert left.exists()
    newest()._process.kill()
    newest()._process.wait()
    os.utime(left, (0, 0))
    until = time.monotonic() + 60
    while left.exists() and time.monotonic() < until:  # what it had forked may still end
        sweep.__wrapped__(str(tmp_path))
    assert not left.exists()


@pytest.mark.parametrize("megabytes", [8.0, 2.0])
def test_what_a_program_writes_is_limited_also_in_files_that_it_has_deleted(megabytes: float) -> None:
    found = result(played(task_of("fills", program={"disk_mb": megabytes})))
    assert found == f"{int(megabytes)} MB"


@pytest.mark.parametrize(
    "said", ["nonsense", "half", "no object", "no result", "machinery", "more", "imports", "brackets", "another run"]
)
def test_a_result_that_a_program_forges_is_its_own_at_most(said: str) -> None:
    """It is not a failure of the machinery (that would be an error), it is not the result of another run, and the
    worker goes on."""
    waiting = envs.make(task_of("forges"))
    assert isinstance(waiting, OutsideProgram)
    waiting.observe()
    worker = newest()
    env = played(task_of("forges"), said)
    (reward,) = envs.outcome_of(env)
    assert reward.name in ("crashed", "score")
    assert waiting.observe(), "the other run still waits for its answer"
    assert newest() is worker and worker.alive
    waiting.close()


def test_a_result_that_is_nested_deeply_ends_its_own_run() -> None:
    env = played(task_of("deep"))
    assert len(envs.outcome_of(env).records) == 1 and newest().alive


def test_a_command_may_print_more_brackets_than_can_be_read() -> None:
    env = played(task_of(command=[sys.executable, str(TEAMS / "reckless.py")]))
    assert result(env) == "[" * 100_000 and newest().alive


def test_half_a_character_becomes_a_question_mark() -> None:
    env = envs.make(task_of("half_a_character"))
    assert env.observe()["planner"].messages[0].content == "a ? b"
    calls = [{"id": "1", "function": {"name": "f", "arguments": '"\ud800"'}}]
    (message,) = messages_of([{"role": "assistant", "content": None, "tool_calls": calls}])
    assert message.tool_calls[0].arguments == '"?"'


def test_arguments_with_more_brackets_than_can_be_read_are_compared_as_text() -> None:
    assert _canonical("[" * 100_000) == "[" * 100_000
    assert _canonical('{"b": 1,  "a": 2}') == '{"a": 2, "b": 1}'

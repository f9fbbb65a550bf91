"""A session tells the records of its run how it ended."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from interplay.cli.session import Session
from interplay.config import parse
from interplay.errors import EngineLost
from interplay.rollout.resolve import resolve
from interplay.training.run_folder import RunFolder

RECIPE: dict[str, Any] = {
    "name": "small",
    "device": "cpu",
    "seats": "player",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"player": {"base": "tiny-16x1"}},
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 2},
    "rollout": {"tasks": 1},
    "train": {"steps": 1},
    "eval": {"before": False, "after": False, "opponents": ["bot:random"]},
    "cluster": {"restarts": 1},
    "records": {"tensorboard": "off"},
}


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit codes that the records of a run were closed with."""
    found: list[int] = []
    close = RunFolder.close

    def noted(folder: RunFolder, exit_code: int) -> None:
        found.append(exit_code)
        close(folder, exit_code)

    monkeypatch.setattr(RunFolder, "close", noted)
    return found


def made(folder: Path, console: Console | None = None) -> Session:
    return Session(console or Console(quiet=True), resolve(parse(RECIPE)), folder)


def test_a_finished_run_has_exit_code_0(tmp_path: Path, codes: list[int]) -> None:
    console = Console(width=200)
    with console.capture() as said:
        assert made(tmp_path, console).run() and codes == [0]
    assert "grpo, 1 step, seed 0" in said.get() and "trained 1 step in" in said.get()


def test_commands_to_copy_are_not_wrapped_where_the_output_is_a_file(tmp_path: Path) -> None:
    """Audit D1: if the output is not a terminal, rich assumes that a line has 80 columns."""
    run, out = tmp_path / ("long" * 30), io.StringIO()
    made(run, Console(file=out, width=80)).run()
    lines = out.getvalue().splitlines()
    for command in (f"interplay eval {run} eval.games=1000", f"interplay train {run} train.steps=2 --resume"):
        assert any(command in line for line in lines), lines


def test_a_run_that_a_signal_stopped_has_exit_code_75(tmp_path: Path, codes: list[int]) -> None:
    session = made(tmp_path)
    session.interrupt.ask()
    assert not session.run() and codes == [75]


def test_a_run_that_crashed_has_exit_code_1(tmp_path: Path, codes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    session = made(tmp_path)

    def crash(*given: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(session.trainer.learning, "learn", crash)
    with pytest.raises(ZeroDivisionError):
        session.run()
    assert codes == [1]


def test_a_run_that_begins_again_closes_its_records_as_failed_first(
    tmp_path: Path, codes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = made(tmp_path)

    def lose(*given: Any) -> None:
        raise EngineLost("the engine is gone.")

    monkeypatch.setattr(session.trainer.learning, "learn", lose)  # the next trainer has its own
    assert session.run() and codes == [1, 0]

"""A session tells the records of its run how it ended."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from interplay.cli.progress import LastingConsole
from interplay.cli.session import Session
from interplay.config import parse
from interplay.engines.local.engine import LocalEngine
from interplay.errors import ConfigError, EngineLost, LearnerLost
from interplay.rollout.resolve import resolve
from interplay.training.learning import Learning
from interplay.training.local import LocalLearner
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


def made(folder: Path, console: Console | None = None, *overrides: str) -> Session:
    return Session(console or Console(quiet=True), resolve(parse(RECIPE, overrides)), folder)


def test_a_run_goes_on_when_its_output_is_no_longer_read(
    tmp_path: Path, codes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """`interplay train RECIPE | head -1` ended the run at its second line, without a word and without a checkpoint."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output, caplog.at_level(logging.WARNING):
        assert made(tmp_path, LastingConsole(file=output), "eval.after=true", "eval.games=2").run() and codes == [0]
    assert json.loads((tmp_path / "report.json").read_text())["steps"] == 1
    told = [r.message for r in caplog.records if "no longer read" in r.message]
    assert told == ["the output of this command is no longer read; it goes on without printing."]


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


def test_a_run_may_lose_processes_any_number_of_times_if_it_makes_checkpoints_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cluster.restarts` is 1 here. Every step loses its engine once, so the run begins again three times."""
    learn, lost = Learning.learn, list[int]()

    def lose(learning: Learning, *given: Any) -> Any:
        if (step := session.trainer.step_index) not in lost:
            lost.append(step)
            raise EngineLost("the engine is gone.")
        return learn(learning, *given)

    monkeypatch.setattr(Learning, "learn", lose)
    session = made(tmp_path, None, "train.steps=3", "checkpoint.every=1", "checkpoint.share=1")
    assert session.run() and lost == [0, 1, 2]


def test_a_run_that_loses_processes_without_a_checkpoint_between_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(*given: Any) -> None:
        raise EngineLost("the engine is gone.")

    monkeypatch.setattr(Learning, "learn", lose)
    with pytest.raises(EngineLost):
        made(tmp_path).run()
    assert caplog.text.count("The run goes on from its newest checkpoint (1 of 1)") == 1


def test_a_run_that_loses_a_learner_again_while_it_begins_again_goes_on_and_leaves_no_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second loss comes while the state of the checkpoint is read. What was started for it is ended."""
    learn, load, close = Learning.learn, LocalLearner.load_state_dict, LocalLearner.close
    losses, opened, closed = (
        [LearnerLost("a rank has ended."), LearnerLost("a rank has ended.")],
        set[int](),
        set[int](),
    )

    def lose(work: Any) -> Any:
        def losing(self: Any, *given: Any) -> Any:
            if len(losses) == (2 if work is learn else 1):
                raise losses.pop()
            return work(self, *given)

        return losing

    def noted(self: LocalLearner) -> None:
        closed.add(id(self))
        close(self)

    def made_learner(self: LocalLearner, *given: Any) -> None:
        kept.append(self)
        opened.add(id(self))
        start(self, *given)

    kept, start = list[LocalLearner](), LocalLearner.__init__
    monkeypatch.setattr(Learning, "learn", lose(learn))
    monkeypatch.setattr(LocalLearner, "load_state_dict", lose(load))
    monkeypatch.setattr(LocalLearner, "close", noted)
    monkeypatch.setattr(LocalLearner, "__init__", made_learner)
    assert made(tmp_path, None, "cluster.restarts=2").run()
    assert not losses and len(opened) == 3 and opened == closed


def test_a_trainer_is_closed_once_although_no_other_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int]
) -> None:
    """The session closes it to begin again, and again at its end. The new trainer fails when its engines exist already:
    they are closed too."""
    init, close, opened, closed = LocalEngine.__init__, LocalEngine.close, list[int](), list[int]()

    def lose(*given: Any) -> None:
        raise EngineLost("the engine is gone.")

    def fail(*given: Any) -> None:
        raise ConfigError("the judges cannot be made.")

    def engine_made(self: LocalEngine, *given: Any, **named: Any) -> None:
        opened.append(id(self))
        kept.append(self)
        init(self, *given, **named)

    def engine_closed(self: LocalEngine) -> None:
        closed.append(id(self))
        close(self)

    kept: list[LocalEngine] = []  # so that no two of them have the same id
    before = set(threading.enumerate())
    monkeypatch.setattr(LocalEngine, "__init__", engine_made)
    monkeypatch.setattr(LocalEngine, "close", engine_closed)
    monkeypatch.setattr(Learning, "learn", lose)
    session = made(tmp_path)
    monkeypatch.setattr("interplay.training.state.Judges", fail)
    with pytest.raises(ConfigError, match="the judges cannot be made"):
        session.run()
    assert len(opened) == 2 and sorted(closed) == sorted(opened) and codes == [1]
    for thread in set(threading.enumerate()) - before:
        if thread.name == "interplay-learner":
            thread.join(60)  # it is told to end, and a busy machine may take a second
            assert not thread.is_alive()


def test_a_fleet_that_cannot_be_closed_leaves_nothing_else_open(tmp_path: Path, codes: list[int]) -> None:
    """If a cluster is lost, its actors cannot be ended any more."""

    class LostFleet:
        def close(self) -> None:
            raise RuntimeError("the cluster is gone")

    trainer = made(tmp_path).trainer
    trainer.fleet = LostFleet()  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="the cluster is gone"):
        trainer.close(1)
    assert codes == [1] and all(engine._closed for engine in trainer.team.pool.engines)  # type: ignore[attr-defined]
    trainer.close(0)
    assert codes == [1]

"""Signals that come at awkward moments: while models are loaded, during imitation, after a lost process."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from interplay.agents.bots import Bot
from interplay.cli import train
from interplay.cli.session import Session
from interplay.config import parse
from interplay.envs import Env
from interplay.rollout.resolve import resolve
from interplay.training import demonstrations
from interplay.training import interrupt as interrupts
from interplay.training.interrupt import Interrupt
from interplay.training.trainer import Trainer

RECIPE: dict[str, Any] = {
    "name": "small",
    "device": "cpu",
    "seats": "player",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"player": {"base": "tiny-16x1"}},
    "warmstart": {"bot": "bot:random", "episodes": 50, "epochs": 1},
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 2},
    "rollout": {"tasks": 1},
    "train": {"steps": 1},
    "eval": {"games": 2, "before": True, "after": False, "opponents": ["bot:random"]},
    "records": {"tensorboard": "off"},
}


@pytest.fixture(autouse=True)
def survived() -> Iterator[None]:
    """A signal that nobody hears would end the tests."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def made(folder: Path) -> Session:
    return Session(Console(quiet=True), resolve(parse(RECIPE)), folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_models_are_loaded_ends_the_run(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the process at once, with an exit code after which the Slurm job did not requeue itself."""
    (tmp_path / "run.json").write_text(json.dumps({"recipe": RECIPE}))

    def load(session: Session, *given: Any) -> None:
        os.kill(os.getpid(), number)
        init(session, *given)

    init = Session.__init__
    monkeypatch.setattr(Session, "__init__", load)
    assert not train.train_recipe(Console(quiet=True), str(tmp_path), [], None, True), "it is not finished"
    assert not (tmp_path / "checkpoints").exists()


def test_a_signal_ends_imitation_before_its_games_are_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were all played first, which may take longer than a scheduler waits."""
    trainer = Trainer(resolve(parse(RECIPE)), tmp_path)
    games = itertools.count(1)

    def played(bot: Bot, env: Env, rng: random.Random) -> Iterator[demonstrations.Demonstration]:
        if next(games) == 3:
            trainer.interrupt.ask()
        return moves(bot, env, rng)

    moves = demonstrations._moves_of
    monkeypatch.setattr(demonstrations, "_moves_of", played)
    trainer.train()
    trainer.close()
    assert next(games) == 4 and not (tmp_path / "checkpoints").exists()


def test_a_trainer_that_takes_over_hears_the_same_signals(tmp_path: Path) -> None:
    """After a lost process another trainer goes on. A signal during the last measurement reached only the first."""
    session = made(tmp_path)
    heard = session.trainer.interrupt  # whoever hears the signals of the run
    session._begin_again()
    heard.ask()
    assert session.trainer.stopping
    session.trainer.close()


def test_what_was_measured_before_imitation_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After imitation there is a checkpoint, so a resumed run cannot measure the untrained policy any more."""
    session = made(tmp_path)

    def killed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_train", killed)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    report = tmp_path / "report.json"
    assert report.is_file() and "untrained" in json.loads(report.read_text())["results"]


def test_ctrl_c_while_models_are_loaded_ends_the_command_at_once() -> None:
    interrupt = Interrupt()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets background jobs ignore Ctrl-C
    try:
        with interrupt.heard(keyboard=False), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not interrupt.asked


def test_only_a_second_ctrl_c_of_a_person_ends_the_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout -s INT` sends the signal twice, and a scheduler may send several signals, which arrive in any order.
    The run would have ended without its checkpoint."""
    now = 100.0
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now)
    interrupt = Interrupt()
    with interrupt.heard():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGINT):
            os.kill(os.getpid(), number)
        now += 0.4
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        now += 0.2
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

"""Trackers: a metric has the same name everywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interplay.config import parse
from interplay.errors import ConfigError
from interplay.training import trackers
from interplay.training.run_folder import RunFolder
from interplay.types import Credit

RECIPE: dict[str, Any] = {
    "name": "tracked",
    "env": {"name": "tictactoe"},
    "policies": {"player": {"base": "tiny"}},
    "seats": "player",
    "algorithm": {"name": "grpo"},
}
METRICS = {"reward": 0.5, "player/entropy": 1.25, "reply_tokens": 3.0}


class Wandb(ModuleType):
    """Stands for the package: keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.settings: list[dict[str, Any]] = []
        self.logged: list[tuple[dict[str, float], int]] = []
        self.finished = 0

    def init(self, **settings: Any) -> Wandb:
        self.settings.append(settings)
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((metrics, step))

    def finish(self) -> None:
        self.finished += 1


def folder(path: Path, **section: Any) -> RunFolder:
    return RunFolder(path, parse({**RECIPE, "records": {"tensorboard": "off", **section}}))


def test_weights_and_biases_gets_the_metrics_under_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    for step in (1, 2):  # the second folder is the same run, resumed
        made = folder(tmp_path / "run", wandb="offline", wandb_project="games")
        made.step(step, [], METRICS, Credit())
        made.close()
    assert fake.logged == [(METRICS, 1), (METRICS, 2)] and fake.finished == 2
    first, second = fake.settings
    assert first["project"] == "games" and first["mode"] == "offline" and first["config"]["name"] == "tracked"
    assert first["id"] == second["id"] and first["resume"] == "allow"  # one page for a run, also after --resume
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert METRICS.items() <= row.items()


def test_tensorboard_has_the_same_names(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install 'interplay[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = folder(tmp_path / "run", tensorboard="on")
    made.step(7, [], METRICS, Credit())
    made.close()
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {name: board.Scalars(name)[0].value for name in board.Tags()["scalars"]} == METRICS
    assert board.Scalars("reward")[0].step == 7


def test_a_tracker_that_is_not_installed_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'interplay\[wandb\]'"):
        folder(tmp_path / "run", wandb="online")
    folder(tmp_path / "run", tensorboard="auto").close()  # TensorBoard is used only if it is there

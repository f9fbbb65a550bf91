"""Trackers: a metric has the same name everywhere."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interplay.config import parse
from interplay.errors import ConfigError
from interplay.training import trackers
from interplay.training.run_folder import RunFolder

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
        self.finished: list[int] = []
        self.Error = RuntimeError
        self.refusal = ""

    def init(self, **settings: Any) -> Wandb:
        if self.refusal:
            raise self.Error(self.refusal)
        self.settings.append(settings)
        return self

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.logged.append((metrics, step))

    def finish(self, exit_code: int | None = None) -> None:
        self.finished.append(0 if exit_code is None else exit_code)


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
        made.measured(step, METRICS)
        made.close(2 - step)  # the first one failed
    assert fake.logged == [(METRICS, 1), (METRICS, 2)] and fake.finished == [1, 0]
    first, second = fake.settings
    assert first["project"] == "games" and first["mode"] == "offline" and first["config"]["name"] == "tracked"
    assert first["id"] == second["id"] and first["resume"] == "allow"  # one page for a run, also after --resume
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert METRICS.items() <= row.items()


def test_weights_and_biases_without_a_key_is_an_error_of_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Wandb()
    fake.refusal = "No API key configured. Use `wandb login` to log in."
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setattr(trackers, "find_spec", lambda name: object())
    with pytest.raises(Exception, match="No API key configured") as raised:
        folder(tmp_path / "run", wandb="online")
    assert isinstance(raised.value, ConfigError) and "records.wandb=offline" in str(raised.value)


def test_the_file_of_an_offline_run_has_what_metrics_jsonl_has(tmp_path: Path) -> None:
    """With the real package: what `wandb sync` would send, also after a resume."""
    pytest.importorskip("wandb", reason="Weights & Biases is not installed: pip install 'interplay[wandb]'")
    for step in (1, 2):
        made = folder(tmp_path / "run", wandb="offline")
        made.measured(step, {**METRICS, "reward": step / 3})
        made.close()
    files = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    sent = sorted((row for file in files for row in histories(file.read_bytes())), key=lambda row: row["_step"])
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["_step"] for row in sent] == [line["step"] for line in lines] == [1, 2]
    for row, line in zip(sent, lines, strict=True):
        own = {name: value for name, value in row.items() if not name.startswith("_")}
        assert own == {name: value for name, value in line.items() if name not in ("step", "time")}


def histories(data: bytes) -> list[dict[str, Any]]:
    """The rows of metrics in W&B's file: after seven bytes, records in blocks of 32 KiB. A record has a checksum, its
    length and its kind: whole (1), first (2), middle (3) or last part (4)."""
    from wandb.proto import wandb_internal_pb2

    assert data.startswith(b":W&B")
    at, whole, found = 7, b"", []
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:  # the rest of a block is too short for a record
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole, at = whole + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record.FromString(whole)
            whole = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                found.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    return found


def test_tensorboard_has_the_same_names(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install 'interplay[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    made = folder(tmp_path / "run", tensorboard="on")
    made.measured(7, METRICS)
    made.close()
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {name: board.Scalars(name)[0].value for name in board.Tags()["scalars"]} == METRICS
    assert board.Scalars("reward")[0].step == 7


def test_a_tracker_that_is_not_installed_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'interplay\[wandb\]'"):
        folder(tmp_path / "run", wandb="online")
    folder(tmp_path / "run", tensorboard="auto").close()  # TensorBoard is used only if it is there

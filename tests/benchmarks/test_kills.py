"""Random kills: a kill comes only after the run has loaded its models, and differences between two runs are found."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

# A run that loads, and then makes steps until it is ended. It answers SIGTERM as `interplay train` does.
RUN = """
import json, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
time.sleep(0.3)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
(folder / "run.json").write_text("{}")
while True:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"time": time.time()}) + chr(10))
    time.sleep(0.05)
"""


@pytest.fixture
def kills(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/kills.py")


def test_a_kill_comes_when_the_run_has_loaded_and_made_its_steps(
    kills: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came at a random moment after the start, which was nearly always before the first step."""
    (tmp_path / "metrics.jsonl").write_text('{"time": 1.0}\n')  # from before
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    monkeypatch.setattr(kills, "_start", lambda *_: subprocess.Popen(command, stderr=subprocess.PIPE))
    monkeypatch.setattr(kills.random.Random, "randint", lambda *_: 2)
    found = {kills._kill("x", tmp_path, random.Random(seed), 0.0) for seed in (0, 1)}
    assert {kind for kind, _ in found} == {"SIGKILL", "SIGTERM"}
    assert min(step for _, step in found) >= 3, "the step from before, and two more"


def test_a_run_that_ends_by_itself_is_no_killed_run(
    kills: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "_start", lambda *_: subprocess.Popen(["true"], stderr=subprocess.PIPE))
    with pytest.raises(SystemExit, match="x ended with 0 after SIG"):
        kills._kill("x", tmp_path, random.Random(0), 0.0)


def test_only_steps_of_this_start_count(kills: ModuleType, tmp_path: Path) -> None:
    assert kills._steps_since(tmp_path, 5.0) == -1, "it loads"
    (tmp_path / "run.json").write_text("{}")
    os.utime(tmp_path / "run.json", (4.0, 4.0))
    assert kills._steps_since(tmp_path, 5.0) == -1, "the file is from an earlier start"
    os.utime(tmp_path / "run.json", (6.0, 6.0))
    lines = [json.dumps({"time": moment}) for moment in (3.0, 7.0, 8.0)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"time": 9')
    assert kills._steps_since(tmp_path, 5.0) == 2 and kills._seconds(tmp_path) == 2.5


def test_clocks_may_differ_and_nothing_else(kills: ModuleType) -> None:
    row = {"step": 1, "time": 5.0, "seconds/total": 2.0, "tokens_per_second": 3.0, "reward": 0.5}
    assert kills._metrics({**row, "learner/update_seconds_per_gb": 1.0}) == {"step": 1, "reward": 0.5}
    turn = {"samples": [{"seconds": 0.1, "text": "a"}], "tools": [{"name": "t", "parameters": [], "seconds": 5.0}]}
    kept = {"samples": [{"text": "a"}], "tools": turn["tools"]}
    record = {"step": 1, "episode": {"seconds": 2.0, "turns": [turn], "judged": [turn]}}
    assert kills._episode(record) == {"step": 1, "episode": {"turns": [kept], "judged": [kept]}}
    assert kills._flat({"a": [1, {"b": 2}]}) == {"/a/0": 1, "/a/1/b": 2}

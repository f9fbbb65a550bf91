"""The cold start: a new program up to its first training step. And steps of two checkouts by turns."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interplay.models.locate import locate


@pytest.mark.slow
def test_a_cold_start_is_timed_from_the_start_of_the_program_to_its_first_step(
    load_script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    found = load_script("benchmarks/end_to_end.py").cold(locate("tiny-32x1", 0), 8, 4)
    assert list(found) == ["nothing compiled", "kernels compiled"]
    for at in found.values():
        assert 0 < at["imported"] < at["loaded"] < at["stepped"]
    assert "cold start, kernels compiled: imported after" in capsys.readouterr().out


def test_steps_of_an_older_checkout_and_of_this_one_are_measured_by_turns(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = load_script("benchmarks/end_to_end.py")
    ran: list[tuple[Path, str]] = []

    def run(command: list[str], env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        tree = Path(command[command.index("--inside") + 1])
        ran.append((tree, env["PYTHONPATH"].partition(":")[0]))
        first, usual = {"seconds": 9.0}, 0.4 if tree == tmp_path else 0.5  # steps that prepare do not count
        row = {"seconds": usual, "seconds/rollout": usual / 2} | ({} if tree == tmp_path else {"seconds/probing": 0.1})
        table = {module.EVERY: [first] * 3 + [row] * 4 + [first | row | {"seconds": 9.0}]}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(table))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(module.subprocess, "run", run)
    given = ["--model", "tiny-32x1", "--quick", "--updates", "--old", str(tmp_path), "--pairs", "2"]
    monkeypatch.setattr(sys, "argv", ["end_to_end.py", *given])
    module.main()
    assert ran == [(tmp_path, str(tmp_path / "src")), (module.ROOT, str(module.ROOT / "src"))] * 2
    out = capsys.readouterr().out
    assert "speed of the new one, old = 1: 0.800  0.800; median 0.800" in out
    assert re.search(r"seconds/rollout +old 0.2000 +new 0.2500", out)
    assert re.search(r"seconds/probing +old 0.0000 +new 0.1000", out)


def test_an_older_checkout_without_updates_is_refused(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["end_to_end.py", "--old", "x"])
    with pytest.raises(SystemExit):
        load_script("benchmarks/end_to_end.py").main()
    assert "expected --updates beside it" in capsys.readouterr().err

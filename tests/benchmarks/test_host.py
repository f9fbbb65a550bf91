"""`benchmarks/host.py`: the CPU time of a step, of two checkouts by turns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch


def test_old_and_new_take_turns_and_functions_are_compared_by_name(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = load_script("benchmarks/host.py")
    ran: list[Path] = []

    def measure(tree: Path, steps: int, profiled: bool) -> object:
        ran.append(tree)
        own = {"gone": (8, 0.8), "same": (4, 0.4)} if tree == tmp_path else {"same": (4, 0.4), "slow": (5, 1.6)}
        return module.Measured([0.4] * steps if tree == tmp_path else [0.5] * steps, own)

    monkeypatch.setattr(module, "measure", measure)
    given = ["host.py", "--old", str(tmp_path), "--pairs", "2", "--steps", "5", "--functions", "2"]
    monkeypatch.setattr(sys, "argv", given)
    module.main()
    assert ran == [tmp_path, module.ROOT] * 2
    out = capsys.readouterr().out
    assert "speed of the new one, old = 1: 0.800  0.800; median 0.800" in out
    assert "new: 1 calls of functions a step" in out  # 18 in two runs of 8 steps
    *_, first, second = out.splitlines()
    assert first.split() == ["slow", "0", "10", "0.00", "200.00", "+200.00"]  # two runs of 5 steps and 3 more
    assert second.split() == ["gone", "16", "0", "100.00", "0.00", "-100.00"]


def test_every_counted_step_of_a_run_has_its_time(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load_script("benchmarks/host.py")
    monkeypatch.setattr(module, "OVERRIDES", (*module.OVERRIDES, "rollout.tasks=1", "sampling.max_tokens=2"))
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # this process has other tests
    found = module.inside(module.ROOT, 2, False)
    assert len(found["steps"]) == 2 and min(found["steps"]) > 0 and not found["functions"]

"""`benchmarks/envs.py`: no environment is slow, and none is left out of the table."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from interplay import envs

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "envs.py"


def test_every_environment_makes_its_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Games at least 2,000 observe and step a second of processor time, work 500."""
    spec = importlib.util.spec_from_file_location("benchmark_envs", SCRIPT)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(sys, "argv", ["envs.py", "--seconds", "0.05"])
    script.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[0] for line in lines} == {*envs.known(), *script.ADAPTED}
    assert len(lines) > len(envs.known()) and not [line for line in lines if "too slow" in line]

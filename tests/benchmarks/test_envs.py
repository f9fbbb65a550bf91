"""`benchmarks/envs.py`: no environment is slow, and none is left out of the table."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from interplay import envs


def test_every_environment_makes_its_steps(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Games at least 2,000 observe and step a second of processor time, work and games of the senses 500; a tenth of
    that on a machine that may be slow."""
    benchmark = load_script("benchmarks/envs.py")
    monkeypatch.setattr(benchmark, "LEAST", {kind: least / 10 for kind, least in benchmark.LEAST.items()})
    monkeypatch.setattr(sys, "argv", ["envs.py", "--seconds", "0.05"])
    benchmark.main()
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[0] for line in lines} == {*envs.known(), *benchmark.ADAPTED}
    assert len(lines) > len(envs.known()) and not [line for line in lines if "too slow" in line]

"""benchmarks/gateway.py measures what it says, on the smallest shapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def test_calls_sessions_a_rollout_and_a_team_are_measured(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "programs"))
    gateway = load_script("benchmarks/gateway.py")
    small = [
        "--count",
        "20",
        "--sessions",
        "8",
        "--episodes",
        "2",
        "--repeats",
        "1",
        "--ways",
        "native,bare,bare-kept",
        "--rounds",
        "1",
    ]
    calls, sessions, rollout = gateway.main(["calls", "sessions", "rollout", *small])
    assert calls["calls"] == 20 and calls["cpu_ms_per_call"] > 0
    assert sessions["answered"] == 8
    assert rollout["2 calls"]["bare-kept/native"] > 0 and rollout["2 calls"]["bare/native"] > 0
    assert rollout["2 calls"]["repeats"] == 1
    size = {"base": "tiny", "steps": 1, "tasks": 2, "lr": 1e-3}
    found = gateway._trained(gateway._program({**gateway.TASKS["code"], "coroutine": "programs:code"}), size, 60.0)
    assert found["steps"] == 1 and found["failed"] == 0

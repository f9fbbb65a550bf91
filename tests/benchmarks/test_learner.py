"""The benchmark of the learner runs, on a CPU and a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def test_every_kind_of_step_is_timed(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr("sys.argv", ["learner.py", "--quick", "--json", str(tmp_path / "table.json")])
    script = load_script("benchmarks/learner.py")
    monkeypatch.setattr(script.forward, "GAIN", script.forward.GAIN)  # the script sets it: put it back afterwards
    monkeypatch.setattr(script, "measure_rates", lambda device, dtype: type("Rates", (), {"matmul": 1e9}))
    script.main()
    lines = json.loads((tmp_path / "table.json").read_text())["lines"]
    assert [line["what"] for line in lines] == [
        "full", "full, recompute", "LoRA 16", "4 × LoRA 16 mixed", "full, 8 replies to a prompt",
        "full, 8 replies, prompts apart",
    ]  # fmt: skip
    assert all(line["tokens_per_second"] > 0 for line in lines)


PARTS = {"labour.py", "simulation.py", "waiting.py"}  # imported by others
SCRIPTS = sorted(p.name for p in (ROOT / "benchmarks").glob("*.py") if p.name not in PARTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_finds_what_it_imports(
    load_script: Callable[[str], ModuleType], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    assert callable(load_script(f"benchmarks/{name}").main)

"""`benchmarks/speculate.py` runs on a CPU and a tiny model, and the drafts of a second epoch are used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def test_a_second_epoch_is_timed_with_drafts_and_without(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    out = tmp_path / "table.json"
    small = ["--cpu", "--batches", "1,4", "--new", "24", "--rounds", "1", "--group", "2", "--json", str(out)]
    monkeypatch.setattr("sys.argv", ["speculate.py", *small])
    load_script("benchmarks/speculate.py").main()
    rows = json.loads(out.read_text())["rows"]
    assert [row["batch"] for row in rows] == [1, 4]
    for row in rows:
        assert row["identical"] == 1
        assert row["off"]["drafted"] == 0 and row["on"]["drafted"] > 0
        assert min(row[mode]["tokens_per_second"] for mode in ("off", "on", "auto")) > 0
    assert capsys.readouterr().out.count("| 100% | 1 |") == 2

"""`benchmarks/engine.py --profile` accounts for the whole time of a decoding step, on a CPU and a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def test_the_parts_of_a_step_add_up_to_its_time(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine's parts took is at most the time of the steps, and nearly all of it. Only the masked step has
    masks."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    out = tmp_path / "profile.json"
    monkeypatch.setattr("sys.argv", ["engine.py", "--quick", "--profile", "--batch", "8", "--json", str(out)])
    load_script("benchmarks/engine.py").main()
    plain, masked = json.loads(out.read_text())
    for found in (plain, masked):
        assert found["decoding_steps"] == 24 and found["device"] == {}
        assert {"host: scheduling", "sampling", "attention", "matrix products"} <= set(found["host"])
        assert 0.8 * found["step_us_watched"] < sum(found["host"].values()) <= 1.01 * found["step_us_watched"]
    assert "masks" in masked["host"] and "masks" not in plain["host"]


def test_kernels_are_told_apart_by_their_names(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    part = load_script("benchmarks/profile_step.py").kernel_part
    assert [part(name) for name in ("_decode", "_pick", "nvjet_hsh_128x64", "Memcpy DtoH", "_add_norm")] == [
        "attention", "sampling", "matrix products", "copies", "norms and the rest",
    ]  # fmt: skip

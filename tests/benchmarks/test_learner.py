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
    assert all(0 < line["mfu_percent"] < line["mfu_with_output_percent"] for line in lines)


def test_micro_batches_and_kinds_are_options_and_the_time_is_limited(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = load_script("benchmarks/learner.py")
    monkeypatch.setattr(script, "measure_rates", lambda device, dtype: type("Rates", (), {"matmul": 1e9}))
    every = [("full", 64), ("LoRA 16", 64), ("full", 128), ("LoRA 16", 128)]
    for seconds, expected in (("60", every), ("0", every[:1])):
        out = tmp_path / f"{seconds}.json"
        options = ["--micro", "64,128", "--kinds", "full;LoRA 16", "--seconds", seconds, "--json", str(out)]
        monkeypatch.setattr("sys.argv", ["learner.py", "--quick", *options])
        script.main()
        assert [(line["what"], line["micro"]) for line in json.loads(out.read_text())["lines"]] == expected


def test_a_profile_accounts_for_the_whole_step(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = load_script("benchmarks/learner.py")
    monkeypatch.setattr(script, "measure_rates", lambda device, dtype: type("Rates", (), {"matmul": 1e9}))
    out = tmp_path / "table.json"
    monkeypatch.setattr("sys.argv", ["learner.py", "--quick", "--kinds", "full", "--profile", "--json", str(out)])
    script.main()
    (line,) = json.loads(out.read_text())["lines"]
    found = {row["name"]: row for row in line["profile"]["kernels"]}
    assert found["aten::mm"]["calls"] > 0 and found["aten::mm"]["us"] > 0
    assert sum(row["us"] for row in found.values()) <= line["profile"]["wall_us"]
    shares = [float(text.split("%")[0]) for text in capsys.readouterr().out.splitlines() if "%" in text[:8]]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares) + 0.01)


def test_the_output_layer_is_counted_for_the_tokens_of_the_replies(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = load_script("benchmarks/learner.py")
    model = script.build("tiny", "cpu", script.torch.float32)
    assert script.output_flops(model, 10, 6) == 6 * 640 * 64 * 10


PARTS = {"kernels.py", "labour.py", "profile_step.py", "simulation.py", "waiting.py"}  # imported by others
SCRIPTS = sorted(p.name for p in (ROOT / "benchmarks").glob("*.py") if p.name not in PARTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_finds_what_it_imports(
    load_script: Callable[[str], ModuleType], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    assert callable(load_script(f"benchmarks/{name}").main)

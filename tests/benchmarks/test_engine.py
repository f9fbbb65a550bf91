"""The engine's table has vLLM's rows of the same run (a stand-in with vLLM's interface answers here), and its profile
accounts for the whole time of a decoding step."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = """
import time
__version__ = "0.0-stand-in"
class SamplingParams:
    def __init__(self, temperature, max_tokens, ignore_eos, detokenize, logprobs):
        assert temperature == 1.0 and ignore_eos and logprobs in (0, None)
        self.max_tokens = max_tokens
class LLM:
    def __init__(self, model, skip_tokenizer_init, max_model_len, max_num_seqs, gpu_memory_utilization,
                 enable_prefix_caching):
        assert not enable_prefix_caching
    def generate(self, prompts, how, use_tqdm):
        time.sleep(0.01)
        class Reply: token_ids = [1] * how.max_tokens
        class Done: outputs = [Reply()]
        return [Done() for _ in prompts]
"""


@pytest.fixture
def bench(load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_script("benchmarks/engine.py")
    monkeypatch.setattr(module, "measure_rates", lambda *_: module.Rates(1e9, 1e9))
    return module


def call(module: ModuleType, path: str) -> tuple[list[str], dict[str, object]]:
    bench = module.Bench(argparse.Namespace(quick=True))
    given = argparse.Namespace(vllm_python=None, vllm_path=path, vllm_installed="by hand")
    found = bench.vllm("tiny", [2, 4], given)
    assert all(line.note == "no FlashInfer" for line in bench.lines)
    return [f"{line.what} {line.batch}" for line in bench.lines], found


def test_vllm_is_measured_with_and_without_log_probs_for_every_batch(bench: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "vllm.py").write_text(STAND_IN)
    lines, found = call(bench, str(tmp_path))
    name = "vLLM 0.0-stand-in"
    assert lines == [f"{name} 2", f"{name}, no log-probs 2", f"{name} 4", f"{name}, no log-probs 4"]
    assert found["installed"] == "by hand"


def test_a_vllm_that_does_not_run_is_reported_and_leaves_no_row(
    bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "vllm.py").write_text("raise ImportError('no vLLM here')")
    assert call(bench, str(tmp_path)) == ([], {})
    assert "tiny: vLLM did not run: ImportError: no vLLM here" in capsys.readouterr().out


def test_the_parts_of_a_step_add_up_to_its_time(
    load_script: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the engine's parts took is at most the time of the steps, and most of it. Only the masked step has masks."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    out = tmp_path / "profile.json"
    monkeypatch.setattr("sys.argv", ["engine.py", "--quick", "--profile", "--batch", "8", "--json", str(out)])
    load_script("benchmarks/engine.py").main()
    plain, masked = json.loads(out.read_text())
    for found in (plain, masked):
        assert found["decoding_steps"] == 24 and found["device"] == {}
        assert {"host: scheduling", "sampling", "attention", "matrix products"} <= set(found["host"])
        assert 0.5 * found["step_us_watched"] < sum(found["host"].values()) <= 1.01 * found["step_us_watched"]
    assert "masks" in masked["host"] and "masks" not in plain["host"]


def test_kernels_are_told_apart_by_their_names(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    part = load_script("benchmarks/profile_step.py").kernel_part
    assert [part(name) for name in ("_decode", "_pick", "nvjet_hsh_128x64", "Memcpy DtoH", "_add_norm")] == [
        "attention", "sampling", "matrix products", "copies", "norms and the rest",
    ]  # fmt: skip

"""The engine's table has vLLM's rows of the same run. A stand-in with vLLM's interface answers here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

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

"""The GPU runner and its kernels under Triton's interpreter, on a CPU, give the same tokens as the plain runner.

They run in a subprocess, because the interpreter must be chosen before Triton is imported. And they compile."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
HERE = Path(__file__).parent


def last_word(script: str, *given: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *given],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    # The first four models run as `Fused` (mistral has windows), the last two run as transformers has them. For qwen2
    # everything is compared, so it starts first.
    [pytest.param("qwen2", marks=pytest.mark.long), "qwen3", "llama", "mistral", "gemma3", "gpt2"],
)
def test_the_gpu_runner_says_what_the_plain_runner_says(family: str) -> None:
    assert last_word("interpreted.py", family, TRITON_INTERPRET="1") == "equal"


@pytest.mark.slow
def test_drafts_that_the_gpu_looks_up_are_those_of_a_plain_search() -> None:
    assert last_word("interpreted_lookup.py", TRITON_INTERPRET="1") == "equal"


@pytest.mark.slow
def test_replies_are_the_same_when_the_host_works_while_the_gpu_samples() -> None:
    assert last_word("interpreted_overlap.py", TRITON_INTERPRET="1") == "equal"


@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu(tmp_path: Path) -> None:
    assert last_word("compiled.py", TRITON_CACHE_DIR=str(tmp_path)) == "compiled"

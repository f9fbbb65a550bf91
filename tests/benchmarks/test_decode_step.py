"""All columns of the table compute the same hidden states."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
def test_the_kernels_for_few_rows_compute_what_those_before_them_did() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "decode_step.py"), "--quick", "--rows", "1,3"]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith("| tiny")]
    assert [int(row[2]) for row in rows] == [1, 3]
    assert all(float(row[-2].strip(" %")) < 0.01 for row in rows), done.stdout

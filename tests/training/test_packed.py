"""The learner's forward pass for a GPU, on a CPU: log-probs and gradients equal those of plain autograd."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from interplay.engines.local.attention import Spans, as_rows, varlen


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_the_fused_backward_equals_plain_autograd(family: str) -> None:
    script = Path(__file__).parent / "interpreted.py"
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script), family], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("equal")


@pytest.mark.parametrize("lengths", [(256, 256), (250, 201, 256), (512, 500)])
def test_long_sequences_of_like_length_are_attended_to_as_rows_with_the_same_result(lengths: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    spans = Spans(torch.tensor([0, *lengths]).cumsum(0).int(), lengths)
    T = sum(lengths)
    inputs = [torch.randn((T, h, 8), generator=generator, requires_grad=True) for h in (4, 2, 2)]
    outer = torch.randn((T, 4, 8), generator=generator)
    packed, rows = varlen(*inputs, spans, 0.4, 1 << 30), as_rows(*inputs, spans, 0.4)
    torch.testing.assert_close(packed, rows, atol=1e-5, rtol=1e-4)
    for a, b in zip(*(torch.autograd.grad(x, inputs, outer) for x in (packed, rows)), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_rows_are_for_long_sequences_of_like_length_only() -> None:
    def alike(*lengths: int) -> bool:
        return Spans(torch.zeros(len(lengths) + 1), lengths).alike

    assert alike(4096, 4096, 4000, 3900)
    assert alike(1500)
    assert not alike(4096, 2048)  # the shorter would be mostly padding
    assert not alike(300, 300, 300)

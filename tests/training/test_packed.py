"""The learner's forward pass for a GPU, on a CPU: log-probs and gradients equal those of plain autograd."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import example

from interplay.training import forward
from interplay.training.spans import Spans, as_rows, varlen
from interplay.training.tries import lay


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
@pytest.mark.parametrize("family", ["qwen2", "qwen3", "qwen2 sharded"])
def test_the_fused_backward_equals_plain_autograd(family: str, tmp_path: Path) -> None:
    """Also for a model that FSDP2 has sharded, whose layers have their weights only while they run."""
    script = Path(__file__).parent / "interpreted.py"
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    name, *sharded = family.split()
    given = [name, *(str(tmp_path / "store") for _ in sharded)]
    done = subprocess.run([sys.executable, str(script), *given], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("equal")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
@pytest.mark.parametrize(("wide", "narrow"), [(96, 32), (32, 96)])
def test_what_an_adapter_adds_is_not_lost_by_rounding(wide: int, narrow: int) -> None:
    """An adapter may add less than one step of bf16. On average over many outputs, it must not be lost."""
    from interplay.models.fused import Block
    from interplay.models.stacked import Mix, Stacked
    from interplay.training import packed

    generator = torch.Generator().manual_seed(0)
    T, R = 256, 8
    x, weight, down = (
        (torch.randn(shape, generator=generator) / narrow**0.5).bfloat16()
        for shape in ((T, narrow), (wide, narrow), (R, narrow))
    )
    up = torch.randn((R, wide), generator=generator) * 2e-4
    layer = torch.nn.Linear(narrow, wide, bias=False)
    stacked = Stacked.__new__(Stacked)
    stacked._joined, stacked._rounded = {(layer,): (down.float(), up)}, {}
    mix = Mix(stacked, torch.full((1, T, R), 2.0))
    none = torch.empty(0)
    given = packed._Pass(Any, none, none, none, none, Spans(none, (T,)), mix)
    out, _ = packed._product(Block((layer,), weight, wide, None, (0,)), packed._widened(x, R), given)
    base, added = x.float() @ weight.float().t(), 2 * (x.float() @ down.float().t()) @ up
    assert added.abs().mean() < 2**-9 * base.abs().mean()
    kept = ((out.float() - base) * added).sum() / (added * added).sum()
    # The rounding error of an output is spread evenly over 2^-8 of its size: the standard error of `kept`.
    error = 2**-8 / 3**0.5 * base.pow(2).mean().sqrt() / (added.pow(2).sum().sqrt())
    assert abs(kept - 1) < 4 * error < 0.4, (kept, error)


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


def test_spans_that_share_a_beginning_attend_as_if_each_path_stood_alone() -> None:
    """Two tries: one with three levels, and one without branches. For every token, its own path is a sequence."""
    lengths, depths = (5, 3, 4, 2, 6, 1, 7), (0, 1, 1, 2, 2, 1, 0)
    paths = {0: (0,), 1: (0, 1), 2: (0, 2), 3: (0, 2, 3), 4: (0, 2, 4), 5: (0, 5), 6: (6,)}
    spans = Spans.of(lengths, depths, torch.device("cpu"))
    starts = spans.bounds.tolist()
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn((sum(lengths), h, 8), generator=generator, requires_grad=True) for h in (4, 2, 2)]
    outer = torch.randn((sum(lengths), 4, 8), generator=generator)
    shared = varlen(*inputs, spans, 0.4, 1 << 30)

    alone = []
    for path in paths.values():
        at = torch.cat([torch.arange(starts[i], starts[i + 1]) for i in path])
        one = Spans(torch.tensor([0, len(at)]).int(), (len(at),))
        alone.append(varlen(*(x[at] for x in inputs), one, 0.4, 1 << 30)[-lengths[path[-1]] :])
    torch.testing.assert_close(shared, torch.cat(alone), atol=1e-5, rtol=1e-4)
    for a, b in zip(*(torch.autograd.grad(x, inputs, outer) for x in (shared, torch.cat(alone))), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("prompt", "reply", "shared"), [(400, 100, True), (100, 400, False), (100, 25, False)])
def test_prompts_are_computed_once_if_that_saves_much_and_there_are_many_tokens(
    prompt: int, reply: int, shared: bool
) -> None:
    """The third case saves as much as the first one, but with few tokens the kernels' launches take the time."""
    replies = [example(str(i), (7,) * prompt, (8 + i,) * reply) for i in range(4)]
    together, apart = (lay(replies, row_limit=4096, branch=branch) for branch in (True, False))
    assert together.size < apart.size
    model = torch.nn.Linear(1, 1, dtype=torch.bfloat16)
    model.dtype, model.config = torch.bfloat16, object()
    assert forward._pays(model, together, apart) is shared

"""Run by test_cuda.py: Triton compiles every kernel for a GPU, without one.

The interpreter, which the other tests use, accepts some programs that the compiler refuses. Here each launch compiles
its kernel, with the types of the arguments that a model in bf16 gives it, and computes nothing.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).parent))
from families import make
from helpers import random_adapter

from interplay.engines.local.cuda import CudaRunner
from interplay.models import kernels
from interplay.models.fused import Block, Fused
from interplay.models.rotary import Rotary
from interplay.training import layer_parts
from interplay.training.logprobs import LogProbs

TARGET = GPUTarget("cuda", 90, 32)  # an H100 or H200
SOURCE = Path(kernels.__file__).parents[2]
TYPES = {
    torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.float64: "*fp64", torch.int32: "*i32", torch.int64: "*i64",
}  # fmt: skip
done: dict[str, set[str]] = {}  # by kernel, what was compiled


def compile_only(kernel: Any, *given: Any, grid: Any, warmup: bool, **options: Any) -> None:
    """Takes the place of a launch."""
    names = kernel.arg_names
    values = dict(zip(names, given, strict=False)) | {k: v for k, v in options.items() if k in names}
    constant = {p.name for p in kernel.params if p.is_constexpr} | {k for k, v in values.items() if v is None}
    kinds = {name: "constexpr" if name in constant else kind(values[name]) for name in names}
    fixed = {(names.index(name),): values[name] for name in constant}
    settings = {k: v for k, v in options.items() if k not in names}
    what = repr((kinds, sorted(fixed.items()), settings))
    if what not in done.setdefault(kernel.__name__, set()):
        out = triton.compile(ASTSource(kernel, kinds, fixed), target=TARGET, options=settings)
        assert out.asm["cubin"]
        done[kernel.__name__].add(what)


def kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return TYPES[value.dtype]
    if isinstance(value, TensorDescriptor):
        return f"tensordesc<{TYPES[value.base.dtype][1:]}{list(value.block_shape)}>"
    return "fp32" if isinstance(value, float) else "i32"


def engine(family: str) -> None:
    """Prompts, and decoding steps with and without adapters and drafts."""
    model = make(family, layers=1).to(torch.bfloat16)
    runner = CudaRunner(model, 32, 64, 256, 4)
    runner.fused = Fused(model, kernels)
    with torch.inference_mode():
        runner._lookup_of(4)
        for size, width in ((8, 0), (16, 1), (16, 4)):
            runner._step(size, width, False)
        runner.load("a", random_adapter(model, 4, 1))
        runner._step(8, 1, True)
        runner._step(64, 0, True)
        for tokens in (64, 512):
            runner._packed(tokens, True)
        heads, size = runner.fused.heads, runner.keys[0].shape[-1]
        attend = runner._attend(np.array([[1, 2]]), np.array([0]), np.array([20]))
        attend(0, torch.zeros((20, heads, size), dtype=torch.bfloat16), 0.1, 1 << 30)
        angles = torch.zeros(6, 8)
        kernels.rotate_heads(torch.zeros((6, 3 * 2 * 16), dtype=torch.bfloat16), angles, angles, 2)  # of pictures


def products() -> None:
    """Products of few rows, in each form, with the options that they have on a GPU."""
    early = {"EARLY": True, "launch_pdl": True}
    for function in (kernels.joined, kernels.add_norm, kernels.decode_new):
        sys.modules[function.__module__].__dict__["early"] = lambda _: early
    wide = lambda *shape: torch.zeros(shape, dtype=torch.bfloat16)  # noqa: E731
    x = wide(16, 896)
    for bias in (None, wide(128)):
        block = Block((), wide(128, 896), 128, bias, (0,))
        kernels.joined(x, block)
        kernels.joined(x, block, gated=True)
    parts = kernels.joined(x, Block((), wide(896, 896), 896, None, (0,)), parts=True)
    assert parts.dtype is torch.float32 and parts.shape[0] > 1
    kernels.add_norm(parts, torch.zeros(16, 896), wide(896), 1e-6)
    engine("qwen3")


def learner() -> None:
    """The learner's functions, forward and backward."""
    wide = lambda *shape: torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)  # noqa: E731
    x, weight = wide(6, 32), wide(32)
    total = torch.zeros(6, 32, requires_grad=True)
    for residual in (None, total):
        out, summed, back = layer_parts.add_norm(x, residual, weight, 1e-6)
        back(out, summed)
    turns, order = torch.zeros(16, 8), torch.arange(6)
    for norm in (None, wide(16)):
        heads, back_heads = layer_parts.rotate(
            wide(6, 8 * 16), 2, 16, Rotary(turns, turns, order, order, 4, norm, norm)
        )
        back_heads(*heads)
    inner, back_inner = layer_parts.silu_mul(wide(6, 64), 32, 8)
    back_inner(inner)
    for matrix in (wide(50, 32), wide(50, 32).detach()):
        for entropy in (0.0, 1.0):
            logp, spread = LogProbs.apply(wide(6, 32), matrix, torch.zeros(6, dtype=torch.int64), 0.9)
            (logp.sum() + (entropy * spread.sum() if entropy else 0.0)).backward()


def written() -> set[str]:
    """The names of all kernels that the package launches."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    return set(re.findall(r"^def (_\w+)\(", text, re.M)) & set(re.findall(r"^ +(_\w+)\[\(", text, re.M))


def main() -> None:
    JITFunction.run = compile_only
    torch.set_num_threads(1)
    for family in ("qwen2", "qwen3"):
        engine(family)
    products()
    learner()
    assert written() == set(done), written() ^ set(done)
    print(sum(map(len, done.values())), "compiled")


if __name__ == "__main__":
    main()

"""Matrix products: with a result that is not rounded, and of few rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import linear
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from interplay.models.kernels.launch import FEW, early, has_descriptors, precision
from interplay.models.kernels.layers import silu_mul

NARROW = 1024  # if a layer has more inputs and more outputs than this, cuBLAS is faster also for few rows
ROWS = 64  # rows of the output that a program computes


class Weights(Protocol):
    """Layers side by side that read the same input. The first `rows` rows of `storage` are their matrices."""

    @property
    def storage(self) -> Tensor: ...
    @property
    def rows(self) -> int: ...
    @property
    def bias(self) -> Tensor | None: ...


class OneMatrix(NamedTuple):
    """`Weights` of a single matrix."""

    storage: Tensor
    rows: int
    bias: Tensor | None = None


def wide_product(x_TK: Tensor, weight_NK: Tensor) -> Tensor:
    """x·Wᵀ in fp32, also if x and W are in bf16."""
    if x_TK.is_cuda and x_TK.dtype is not torch.float32:
        return torch.mm(x_TK, weight_NK.t(), out_dtype=torch.float32)
    return linear(x_TK.float(), weight_NK.float())


def wide_sum(a_TN: Tensor, b_TK: Tensor) -> Tensor:
    """aᵀ·b in fp32, also if a and b are in bf16."""
    if a_TN.is_cuda and a_TN.dtype is not torch.float32:
        return torch.mm(a_TN.t(), b_TK, out_dtype=torch.float32)
    return a_TN.t().float() @ b_TK.float()


def add_product(total_NK: Tensor, a_TN: Tensor, b_TK: Tensor) -> None:
    """Add aᵀ·b to an fp32 tensor, also if a and b are in bf16."""
    if a_TN.is_cuda and a_TN.dtype is not torch.float32:
        torch.addmm(total_NK, a_TN.t(), b_TK, out_dtype=torch.float32, out=total_NK)
    else:
        total_NK.addmm_(a_TN.t().float(), b_TK.float())


@triton.jit(do_not_specialize=["T"])  # it would be compiled again for some numbers of rows
def _product(
    x, weight, bias, out, T, N, K,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, SPLITS: tl.constexpr, GATED: tl.constexpr,
    PARTS: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * ROWS
    column = tl.program_id(1) * COLUMNS
    split = tl.program_id(2)
    part = tl.cdiv(tl.cdiv(K, DEPTH), SPLITS) * DEPTH
    t = first + tl.arange(0, ROWS)
    n = column + tl.arange(0, COLUMNS)
    inside = (t < T)[:, None] & (n < N)[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    upper = tl.zeros([ROWS, COLUMNS], tl.float32)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    for k in range(split * part, tl.minimum(K, split * part + part), DEPTH):  # outside of a matrix, zeros are loaded
        given = x.load([first, k])
        total = tl.dot(given, weight.load([column, k]).T, total, input_precision=PRECISION)
        if GATED:
            upper = tl.dot(given, weight.load([column + N, k]).T, upper, input_precision=PRECISION)
    spot = out + t.to(tl.int64)[:, None] * N + n[None, :]
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
        if GATED:
            upper += tl.load(bias + N + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if GATED:
        gate = total.to(out.dtype.element_ty)
        wide = gate.to(tl.float32)
        tl.store(spot, (wide * tl.sigmoid(wide)).to(gate.dtype) * upper.to(out.dtype.element_ty), mask=inside)
    elif PARTS:
        tl.store(spot + split.to(tl.int64) * T * N, total, mask=inside)
    else:
        tl.store(spot, total.to(out.dtype.element_ty), mask=inside)


class _Tiles(NamedTuple):
    """Columns and depth of a program's blocks, how many blocks are in memory at a time, and into how many programs the
    work is split by splitting sums."""

    columns: int
    depth: int
    stages: int
    programs: int = 1


# The fastest of those that were tried on an H200, in bf16, with K or N of 896 and 16 to 256 rows.
_PLAIN, _GATED, _PARTS = _Tiles(32, 128, 4), _Tiles(64, 64, 3), _Tiles(64, 128, 3, 200)


def _wide_tiles(N: int, K: int) -> _Tiles:
    """For fp32 results that another kernel reads. More parts take longer to write and to read."""
    if N > 4096:
        return _Tiles(128, 64, 3)
    return _PARTS if K > 2048 else _Tiles(32, 128, 4, 100)


def _few_product(x_TK: Tensor, layers: Weights, tiles: _Tiles, gated: bool = False, parts: bool = False) -> Tensor:
    """`joined` for few rows."""
    T, K = x_TK.shape
    N = layers.rows // 2 if gated else layers.rows
    columns, depth, stages, programs = tiles
    grid = triton.cdiv(T, ROWS), triton.cdiv(N, columns)
    splits = 1
    while parts and splits < 8 and 2 * splits * depth <= K and splits * grid[0] * grid[1] < programs:
        splits *= 2
    kind = torch.float32 if parts else x_TK.dtype
    out = torch.empty((splits, T, N) if parts else (T, N), dtype=kind, device=x_TK.device)
    x, weight = (
        TensorDescriptor.from_tensor(matrix, [block, depth])
        for matrix, block in ((x_TK, ROWS), (layers.storage, columns))
    )
    _product[(*grid, splits)](
        x, weight, out if layers.bias is None else layers.bias, out, T, N, K,
        ROWS=ROWS, COLUMNS=columns, DEPTH=depth, SPLITS=splits, GATED=gated, PARTS=parts,
        BIAS=layers.bias is not None, PRECISION=precision(x_TK), num_warps=4, num_stages=stages, **early(x_TK),
    )  # fmt: skip
    return out


def _is_few(x_TK: Tensor, outputs: int) -> bool:
    """Whether our own kernel is the faster one."""
    T, K = x_TK.shape
    return T <= FEW and min(K, outputs) <= NARROW and K % 8 == 0 and has_descriptors(x_TK)


def wide_parts(x_TK: Tensor, weight_NK: Tensor, outputs: int) -> Tensor:
    """Parts [S, T, N] of x·Wᵀ in fp32, for layers with so many `outputs`; their sum is the product."""
    if _is_few(x_TK, outputs):
        matrix = OneMatrix(weight_NK, weight_NK.shape[0])
        return _few_product(x_TK, matrix, _wide_tiles(matrix.rows, x_TK.shape[1]), parts=True)
    return wide_product(x_TK, weight_NK).unsqueeze(0)


def joined(x_TK: Tensor, layers: Weights, gated: bool = False, parts: bool = False) -> Tensor:
    """The outputs [T, N] of layers side by side. With `gated`, they are gate and up, and silu(gate) · up is returned.
    With `parts`, for layers without a bias, it may return fp32 parts [S, T, N] of the outputs; `add_norm` adds them."""
    if _is_few(x_TK, layers.rows):
        tiles = _GATED if gated else _PARTS if parts else _PLAIN
        return _few_product(x_TK, layers, tiles, gated, parts)
    bias = None if layers.bias is None else layers.bias[: layers.rows]
    out = linear(x_TK, layers.storage[: layers.rows], bias)
    return silu_mul(out, layers.rows // 2) if gated else out

"""Measures what the kernels for few rows gain in a decoding step, at several numbers of rows.

    python benchmarks/decode_step.py                                   one GPU: the 0.5B and the 1.5B shape, in bf16
    python benchmarks/decode_step.py --shapes 0.5B --rows 1,16,256     only these
    TRITON_INTERPRET=1 python benchmarks/decode_step.py --quick        a CPU: checks that all columns compute the same

A step computes one new token for each row over 384 cached tokens, from the embeddings to the final norm, without output
layer and sampling. It is captured in a CUDA graph; the figure is the fastest of ten replays, in µs. Columns:

    before      rotation and attention are two kernels, and all products come from cuBLAS
    attention   one kernel rotates, stores and attends
    products    and products of few rows are our own, if the model is small enough for them (`products.py`)
    early       and a kernel may start before the one before it has ended; this is what the engine does

`apart` is the largest difference between the hidden states of the first and the last column, as a share of the largest
hidden state. In bf16 they differ by rounding. It ends with exit code 1 if they differ by more than 5%.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from engine import build
from torch import Tensor

from interplay.models import fused
from interplay.models.rotary import Decoding

CONTEXT, ROOM = 384, 512  # cached tokens of a row, and its room in the cache
WAYS = ("before", "attention", "products", "early")
TIMES = 10
AHEAD = 2_000_000  # cycles of a GPU: about 1 ms
CLOSE = 0.05


class Step:
    """The model's part of a decoding step with `rows` rows."""

    def __init__(self, model: Any, rows: int) -> None:
        from interplay.models import kernels

        self.fused, device = fused.Fused(model, kernels), model.device
        page = 16
        pages = rows * ROOM // page + 1
        key_heads, size = model.config.num_key_value_heads, self.fused.size
        new = lambda: torch.randn((pages * page, key_heads, size), device=device, dtype=model.dtype)  # noqa: E731
        self.keys, self.values = ([new() for _ in range(self.fused.depth)] for _ in range(2))
        table = (torch.randperm(pages - 1, device=device) + 1).view(rows, -1).to(torch.int32)
        self.ids = torch.randint(10, 100, (rows,), device=device)
        self.positions = torch.full((rows,), CONTEXT - 1, device=device)
        self.slots = table[:, (CONTEXT - 1) // page].long() * page + (CONTEXT - 1) % page
        self.where = Decoding(table, torch.full((rows,), CONTEXT, device=device, dtype=torch.int32))

    def __call__(self, attention: bool) -> Tensor:
        from interplay.models import kernels

        def apart(layer: int, q: Tensor, scale: float, window: int) -> Tensor:
            return kernels.decode_attention(q, self.keys[layer], self.values[layer], self.where, scale, window)

        given = (self.ids, self.positions, self.slots, self.keys, self.values)
        return self.fused.forward(*given, self.where if attention else apart, None)


@contextmanager
def only(way: str) -> Iterator[None]:
    """Without what the later columns add."""
    from interplay.models.kernels import attention, layers, products

    later = WAYS[WAYS.index(way) + 1 :]
    none: Callable[[Tensor], dict[str, bool]] = lambda _: {"EARLY": False}  # noqa: E731
    with (
        patch.object(products, "NARROW", 0 if "products" in later else products.NARROW),
        patch.object(attention, "early", none if "early" in later else attention.early),
        patch.object(layers, "early", none if "early" in later else layers.early),
        patch.object(products, "early", none if "early" in later else products.early),
    ):
        yield


def fastest(work: Callable[[], Tensor], device: str) -> tuple[float, Tensor]:
    """The seconds of the fastest of several replays, and what they compute."""
    if device == "cpu":
        began, out = time.perf_counter(), work()
        return time.perf_counter() - began, out
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        out = work()
    for _ in range(TIMES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD)  # so that the graph has been launched when the GPU comes to it
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return min(times), out


def measured(shape: str, model: Any, rows: int, device: str) -> dict[str, Any]:
    step, found = Step(model, rows), dict[str, Any](shape=shape, rows=rows)
    states = []
    for way in WAYS:
        with only(way):
            seconds, hidden = fastest(lambda: step(way != "before"), device)  # noqa: B023
        found[way] = 1e6 * seconds
        states.append(hidden.float())
    found["apart"] = float((states[0] - states[-1]).abs().max() / states[0].abs().max())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="0.5B,1.5B", help="with commas between them")
    parser.add_argument("--rows", default="1,16,64,128,256,512", help="with commas between them")
    parser.add_argument("--quick", action="store_true", help="a tiny model on a CPU")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    if not args.quick and not torch.cuda.is_available():
        parser.error("there is no GPU; --quick only checks that all columns compute the same, on a CPU.")
    if args.quick and os.environ.get("TRITON_INTERPRET") != "1":
        parser.error(
            "on a CPU, Triton's kernels run only in its interpreter; set TRITON_INTERPRET=1 before the command."
        )
    if args.quick:  # each program of a kernel is slow there
        from interplay.models.kernels import attention

        attention.decode_splits = lambda batch, groups: 2
    device = "cpu" if args.quick else "cuda"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    name = torch.cuda.get_device_name() if device == "cuda" else "Triton's interpreter"
    print(f"{name}, torch {torch.__version__}: µs of a decoding step without output layer and sampling\n")
    print("| shape | rows | " + " | ".join(WAYS) + " | early / before | apart |")
    print("|---|" + "---:|" * (len(WAYS) + 3))
    out = []
    with torch.inference_mode():
        for shape in ["tiny"] if args.quick else args.shapes.split(","):
            model = build(shape, device, dtype)
            for rows in (int(text) for text in args.rows.split(",")):
                found = measured(shape, model, rows, device)
                out.append(found)
                times = " | ".join(f"{found[way]:,.0f}" for way in WAYS)
                share = found["early"] / found["before"]
                print(f"| {shape} | {rows} | {times} | {share:.2f} | {found['apart']:.2%} |", flush=True)
    if max(found["apart"] for found in out) > CLOSE:
        sys.exit(f"the hidden states differ by more than {CLOSE:.0%}")
    if args.json:
        args.json.write_text(json.dumps(out, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

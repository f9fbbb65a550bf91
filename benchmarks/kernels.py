"""Where the time of a training step goes, by kernel: `python benchmarks/learner.py --profile`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

LONGEST = 30  # kernels that are printed; the others are one line


def kernels(work: Callable[[], object], device: str) -> dict[str, Any]:
    """Run `work` once under the profiler. Return its wall time and, for each kernel (on a CPU: operator), the number of
    calls and the time in microseconds, the longest first."""
    gpu = device == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as seen:
        began = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize()
        wall = 1e6 * (time.perf_counter() - began)
    rows = []
    for event in seen.key_averages():
        own = event.self_device_time_total if gpu else event.self_cpu_time_total
        if own > 0 and (not gpu or event.device_type == DeviceType.CUDA):
            rows.append({"name": event.key, "calls": event.count, "us": own})
    rows.sort(key=lambda row: -row["us"])
    return {"wall_us": wall, "kernels": rows}


def show_kernels(found: dict[str, Any]) -> str:
    """A line for each of the longest kernels, one for all others, and one for the time without any kernel."""
    rows, wall = found["kernels"], found["wall_us"]
    busy = sum(row["us"] for row in rows)
    lines = [f"  a step under the profiler: {wall / 1e3:.1f} ms, kernels {busy / 1e3:.1f} ms"]
    for row in rows[:LONGEST]:
        lines.append(
            f"  {100 * row['us'] / wall:5.1f}% {row['us'] / 1e3:9.2f} ms {row['calls']:6} × {row['name'][:90]}"
        )
    rest = rows[LONGEST:]
    lines.append(f"  {100 * sum(r['us'] for r in rest) / wall:5.1f}% in {len(rest)} other kernels")
    lines.append(f"  {100 * max(0.0, wall - busy) / wall:5.1f}% without a kernel")
    return "\n".join(lines)

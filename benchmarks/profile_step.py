"""Says where the time of a decoding step goes, with torch.profiler; `benchmarks/engine.py --profile` prints it.

The steps run on this thread, without the event loop. The profiler reports events, and an event can contain others. Of
each event only its own time is counted, without the events inside it, and it is counted in one part. So the parts add
up to the whole step:

    host: scheduling         admission, blocks, stop checks and deliveries, in Python
    host: launching          Python and torch around the operations, for which a GPU may have to wait
    host: reading back       waiting for the GPU and copying its results
    masks                    legal tokens, top-k, top-p and min-p
    sampling                 from logits to tokens and log-probs
    attention                over the cache
    matrix products          all others: projections, feed-forward, output layer
    norms and the rest       of the model

On a CPU, the parts that compute are part of the host's time. On a GPU they run beside the host, so their times are
listed apart, with the time in which the GPU had nothing to do. The profiler itself costs time: the same steps are also
timed without it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from interplay.engines.engine import Request
from interplay.engines.local import LocalEngine, cpu, runner

HOST = "host: scheduling", "host: launching", "host: reading back"
PARTS = (*HOST, "masks", "sampling", "attention", "matrix products", "norms and the rest")
_PRODUCTS = ("mm", "linear", "gemm", "nvjet", "cutlass", "matmul")
_KERNELS = dict.fromkeys(("_decode", "_merge", "_prefill"), "attention") | dict.fromkeys(
    ("_stats", "_pick"), "sampling"
)


@contextmanager
def labelled(engine: LocalEngine) -> Iterator[None]:
    """Name the parts of a step for the profiler."""
    at = engine.runner
    places = [
        (engine, "_step", HOST[0]), (at, "advance", HOST[1]), (at, "_read", HOST[2]), (at, "_draw", "sampling"),
        (runner, "restrict", "masks"), (runner.Drawing, "allowed", "masks"), (cpu.Window, "attend", "attention"),
        (cpu.Window, "extend", "attention"), (at, "_forward", "norms and the rest"),
    ]  # fmt: skip
    before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in places]
    for owner, name, label in places:
        if hasattr(owner, name):
            setattr(owner, name, _wrapped(getattr(owner, name), label))
    try:
        yield
    finally:
        for owner, name, own in before:
            if own is not None:
                setattr(owner, name, own)
            elif name in owner.__dict__:
                delattr(owner, name)


def _wrapped(call: Any, label: str) -> Any:
    def run(*args: Any, **options: Any) -> Any:
        with record_function(label):
            return call(*args, **options)

    return run


def part_of(name: str, within: str) -> str:
    """The part that an operation of the host belongs to, inside the part `within`."""
    product = any(word in name for word in _PRODUCTS)
    if product and within in ("norms and the rest", "sampling", HOST[1]):
        return "matrix products"
    return within


def kernel_part(name: str) -> str:
    """The part that a kernel of the GPU belongs to, by its name."""
    if name in _KERNELS:
        return _KERNELS[name]
    lower = name.lower()
    if "memcpy" in lower or "memset" in lower:
        return "copies"
    return "matrix products" if any(word in lower for word in _PRODUCTS) else "norms and the rest"


def profiled(engine: LocalEngine, wanted: list[Request], steps: int) -> dict[str, Any]:
    """Microseconds of a decoding step by part: the host's, and on a GPU those of its kernels. `steps` is how often the
    engine is stepped; on a GPU, each time decodes several tokens."""
    loop = asyncio.new_event_loop()
    futures = [loop.create_future() for _ in wanted]
    for request, future in zip(wanted, futures, strict=True):
        engine.scheduler.add(request, future)
    while engine.scheduler.computing or engine.scheduler.queued or not engine.stats().sampled_tokens:
        engine.step()
    plain, _ = _timed(engine, steps)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with labelled(engine), profile(activities=activities) as prof:
        watched, tokens = _timed(engine, steps)
    for future in futures:
        future.cancel()  # the rest of the replies is not needed
    loop.close()
    rows = tokens / len(wanted)
    host, device = defaultdict[str, float](float), defaultdict[str, float](float)
    for event in prof.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            if event.name not in PARTS:  # the labels of the host are also shown on the GPU's line
                device[kernel_part(event.name)] += event.self_device_time_total
        else:
            host[_where(event)] += event.self_cpu_time_total
    out: dict[str, Any] = {"decoding_steps": rows, "step_us": plain / rows, "step_us_watched": watched / rows}
    out["host"] = {part: host[part] / rows for part in PARTS if host[part]}
    out["device"] = {part: us / rows for part, us in device.items()}
    if device:
        out["device"]["idle"] = max(0.0, watched - sum(device.values())) / rows
    return out


def _timed(engine: LocalEngine, steps: int) -> tuple[float, int]:
    """The microseconds that `steps` calls take, and the tokens that they sample."""
    before = engine.stats().sampled_tokens
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # the tokens that were started before are read, and counted, below
    began = time.perf_counter()
    for _ in range(steps):
        engine.step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - began), engine.stats().sampled_tokens - before


def _where(event: Any) -> str:
    """The part of a host event: by the nearest label around it."""
    label, parent = (event.name, None) if event.name in PARTS else ("", event.cpu_parent)
    while not label and parent is not None:
        label, parent = (parent.name, None) if parent.name in PARTS else ("", parent.cpu_parent)
    return part_of(event.name, label or HOST[0])


def table(found: dict[str, Any]) -> str:
    """The parts as Markdown, with their shares."""
    lines = [
        f"A decoding step takes {found['step_us']:,.0f} µs, and {found['step_us_watched']:,.0f} µs under the profiler "
        f"({found['decoding_steps']:.0f} steps), of which:",
        "",
        "| where | µs | share |",
        "|---|---:|---:|",
    ]
    for side in ("host", "device"):
        total = sum(found[side].values())
        for part, us in sorted(found[side].items(), key=lambda item: -item[1]):
            name = part if side == "host" else f"GPU: {part}"
            lines.append(f"| {name} | {us:,.1f} | {us / total:.0%} |")
    return "\n".join(lines)

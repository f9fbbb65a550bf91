"""What sharding costs: the learner under FSDP2 against the plain learner, with the same packed batches.

    torchrun --nproc-per-node=1 benchmarks/fsdp.py        one GPU: one rank on NCCL, Qwen2.5-0.5B shape, bf16
    python benchmarks/fsdp.py --quick                     a CPU: one rank on gloo, the tiny model (does it run)
    python benchmarks/fsdp.py --seconds 240 --json table.json
    python benchmarks/fsdp.py --profile                   also the kernels of a plain and of a sharded step

A step is forward, loss, backward, clipping, optimiser and the host's work around them, over 32 sequences of 4,096
tokens. Plain and sharded steps alternate in one process, and each line is the best of its repetitions. The last
column gathers the whole weights and writes them to files (TMPDIR), as an update of an engine apart does. A line that
fails prints its error, and the others still run. After --seconds no new line is begun.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from engine import build, sync
from kernels import kernels, show_kernels
from learner import examples_of

from interplay.algorithms import losses
from interplay.config import TrainSection
from interplay.models.lora import new_adapter
from interplay.training.learner import Loss, Objective
from interplay.training.local import LocalLearner
from interplay.training.shards import shard
from interplay.training.transfer import write_weights

REPEATS = 4


def join(device: str) -> None:
    """Form the process group: of torchrun, or of this process alone."""
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group(backend)
    else:
        store = os.path.join(tempfile.mkdtemp(), "store")
        dist.init_process_group(backend, init_method=f"file://{store}", rank=0, world_size=1)


def learner_of(shape: str, device: str, what: str, sharded: bool) -> LocalLearner:
    model = build(shape, device, torch.bfloat16)
    config = TrainSection(micro_batch_tokens=16_384, recompute="recompute" in what, gap_mean_stop=1e9, gap_stop=1e9)
    adapter = new_adapter(model, 16, 32.0, [], 0) if "LoRA" in what else None
    if sharded:
        shard(model, device)
    return LocalLearner("a", model, config, 1e-6, 0, adapter)


def timed(work: Callable[[], object], device: str) -> float:
    sync(device)
    began = time.perf_counter()
    work()
    sync(device)
    return time.perf_counter() - began


def compare(what: str, shape: str, device: str, size: tuple[int, int, int], profiled: bool) -> dict[str, float | str]:
    """Alternate plain and sharded steps; the first of each is not counted."""
    loss: Loss = lambda targets, outputs: losses.policy_loss(targets, outputs, 0.2, 0.2, None, 0.0, 0.0)  # noqa: E731
    learners = {kind: learner_of(shape, device, what, kind == "fsdp") for kind in ("plain", "fsdp")}
    batch = examples_of("a", *size, learners["plain"].model.config.vocab_size)
    seconds: dict[str, list[float]] = {kind: [] for kind in learners}
    for _ in range(REPEATS):
        for kind, learner in learners.items():
            seconds[kind].append(timed(lambda x=learner: x.step(batch, Objective(loss)), device))
    best = {kind: min(found[1:]) for kind, found in seconds.items()}
    for kind, learner in learners.items() if profiled else ():
        print(f"{what}, {kind}:\n{show_kernels(kernels(lambda x=learner: x.step(batch, Objective(loss)), device))}")
    with tempfile.TemporaryDirectory() as folder:
        gather = timed(lambda: write_weights(learners["fsdp"].model, Path(folder) / "weights"), device)
    tokens = size[0] * (size[1] + size[2])
    return {
        "what": what,
        "plain_tokens_per_second": tokens / best["plain"],
        "fsdp_tokens_per_second": tokens / best["fsdp"],
        "share_percent": 100 * best["plain"] / best["fsdp"],
        "weights_seconds": gather,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--profile", action="store_true", help="also print the kernels of a step")
    args = parser.parse_args()
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    shape, size = ("0.5B", (32, 256, 3840)) if device == "cuda" else ("tiny", (4, 16, 48))
    join(device)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: {shape}, {dist.get_world_size()} rank(s) on {dist.get_backend()}")
    print(f"{'':18}{'plain tokens/s':>16}{'FSDP2 tokens/s':>16}{'share':>8}{'weights to files':>18}")
    lines, failed = [], 0
    for what in ("full", "full, recompute", "LoRA 16"):
        if time.monotonic() - began > args.seconds:
            print(f"{what:18} left out: over {args.seconds:g} seconds")
            continue
        try:
            lines.append(line := compare(what, shape, device, size, args.profile))
        except Exception:
            failed += 1
            print(f"{what:18} failed:\n{traceback.format_exc()}", flush=True)
            continue
        print(
            f"{what:18}{line['plain_tokens_per_second']:16,.0f}{line['fsdp_tokens_per_second']:16,.0f}"
            f"{line['share_percent']:7.1f}%{line['weights_seconds']:16.2f} s",
            flush=True,
        )
        if device == "cuda":
            torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "device": name, "lines": lines}, file, indent=1)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

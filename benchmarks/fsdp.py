"""Measures what sharding costs: the learner under FSDP2 and the plain learner, with the same packed batches.

    torchrun --nproc-per-node=1 benchmarks/fsdp.py        one GPU: one rank on NCCL, Qwen2.5-0.5B shape, bf16
    python benchmarks/fsdp.py --quick                     a CPU: one rank on gloo, the tiny model, to check that it runs
    python benchmarks/fsdp.py --host                      only the host's seconds, on a GPU or a CPU
    python benchmarks/fsdp.py --seconds 240 --json table.json
    python benchmarks/fsdp.py --profile                   also the kernels of a plain and of a sharded step

A step is forward, loss, backward, clipping, optimiser and the host's work around them, over 32 sequences of 4,096
tokens. Plain and sharded steps alternate in one process, and each line is the best of its repetitions. "kept" keeps
gathered weights until they change, as a run with one rank or with train.gather = "step" does; the other lines gather a
layer's weights each time it runs. With one rank, "full, kept" has all weights in one group, and "LoRA 16, kept" shards
nothing, so only the other lines tell what sharding over several ranks costs the host. "weights to files" gathers the
whole weights and writes them to files (TMPDIR), as an update of a separate engine does. A line that fails prints its
error, and the others still run. After --seconds no new line is begun.

"host" is the time of a step with as many layers, parameters and micro-batches, but with a width of 64 and sequences of
16 tokens. A GPU has almost nothing to compute in it, so this is the time that the host needs to launch all work. The
large step does not show this time, because the host waits for the GPU in it: for the loss, for the norm, and when the
queue of kernels is full. If it is well below the seconds of the large step, the GPU sets the speed. On a CPU, it is the
CPU time of this process, with the small computation.
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
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from engine import QWEN, build, sync
from kernels import kernels, show_kernels
from learner import examples_of
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from interplay.algorithms import losses
from interplay.config import TrainSection
from interplay.models.attention import NAME
from interplay.models.lora import new_adapter
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.shards import shard
from interplay.training.transfer import write_weights

REPEATS = 4
COLUMNS = {  # title, width, format
    "plain_tokens_per_second": ("plain tokens/s", 16, ",.0f"),
    "fsdp_tokens_per_second": ("FSDP2 tokens/s", 16, ",.0f"),
    "share_percent": ("share %", 9, ".1f"),
    "plain_seconds": ("plain s", 9, ".3f"),
    "plain_host_seconds": ("host s", 8, ".3f"),
    "fsdp_seconds": ("FSDP2 s", 9, ".3f"),
    "fsdp_host_seconds": ("host s", 8, ".3f"),
    "weights_seconds": ("weights to files s", 20, ".2f"),
}
KINDS = ("full", "full, kept", "full, recompute", "LoRA 16", "LoRA 16, kept")


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


def narrow(device: str) -> PreTrainedModel:
    """As many layers and parameters as the 0.5B shape has, and almost nothing to compute."""
    torch.manual_seed(0)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "vocab_size": 256}
    model = Qwen2ForCausalLM(Qwen2Config(**{**QWEN["0.5B"], **small, "max_position_embeddings": 256}))
    model.config._attn_implementation = NAME
    return model.to(device=device, dtype=torch.bfloat16).eval()


def learner_of(model: PreTrainedModel, what: str, sharded: bool, tokens: int) -> LocalLearner:
    """`tokens` are those of a micro-batch."""
    config = TrainSection(micro_batch_tokens=tokens, recompute="recompute" in what, gap_mean_stop=1e9, gap_stop=1e9)
    adapter = new_adapter(model, 16, 32.0, [], 0) if "LoRA" in what else None
    if sharded:
        shard(model, model.device.type, "kept" in what, adapter is not None)
    return LocalLearner("a", model, config, 1e-6, 0, adapter)


def loss(targets: losses.Targets, outputs: losses.Outputs) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return losses.policy_loss(targets, outputs, 0.2, 0.2, None, 0.0, 0.0)


def host_seconds(what: str, device: str) -> dict[str, float]:
    """The host's seconds of a plain and of a sharded step, with 8 micro-batches of 4 sequences as in the large step."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    batch = examples_of("a", 32, 4, 12, 256)
    learners = {kind: learner_of(narrow(device), what, kind == "fsdp", 64) for kind in ("plain", "fsdp")}
    return alternated({k: partial(x.step, batch, Objective(loss)) for k, x in learners.items()}, device, clock)


def timed(work: Callable[[], object], device: str, clock: Callable[[], float] = time.perf_counter) -> float:
    sync(device)
    began = clock()
    work()
    sync(device)
    return clock() - began


def alternated(
    steps: dict[str, Callable[[], object]], device: str, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The best seconds of each kind of step. They alternate, and the first of each is not counted."""
    seconds: dict[str, list[float]] = {kind: [] for kind in steps}
    for _ in range(REPEATS):
        for kind, step in steps.items():
            seconds[kind].append(timed(step, device, clock))
    return {kind: min(found[1:]) for kind, found in seconds.items()}


def compare(what: str, shape: str, device: str, size: tuple[int, int, int], profiled: bool) -> dict[str, float]:
    """The speed of plain and sharded steps."""
    learners = {
        kind: learner_of(build(shape, device, torch.bfloat16), what, kind == "fsdp", 16_384)
        for kind in ("plain", "fsdp")
    }
    batch = examples_of("a", *size, learners["plain"].model.config.vocab_size)
    steps: dict[str, Callable[[], object]] = {
        kind: partial(learner.step, batch, Objective(loss)) for kind, learner in learners.items()
    }
    best = alternated(steps, device)
    for kind, step in steps.items() if profiled else ():
        print(f"{what}, {kind}:\n{show_kernels(kernels(step, device))}")
    with tempfile.TemporaryDirectory() as folder:
        gather = timed(lambda: write_weights(learners["fsdp"].model, Path(folder) / "weights"), device)
    tokens = size[0] * (size[1] + size[2])
    return {
        "plain_tokens_per_second": tokens / best["plain"],
        "fsdp_tokens_per_second": tokens / best["fsdp"],
        "share_percent": 100 * best["plain"] / best["fsdp"],
        "plain_seconds": best["plain"],
        "fsdp_seconds": best["fsdp"],
        "weights_seconds": gather,
    }


def show(what: str, line: dict[str, float]) -> None:
    found = (f"{line[key]:{form}}" if key in line else "-" for key, (_, _, form) in COLUMNS.items())
    widths = (width for _, width, _ in COLUMNS.values())
    print(f"{what:18}" + "".join(f"{text:>{width}}" for text, width in zip(found, widths, strict=True)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny model on a CPU: only checks that it runs")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no line after this many seconds")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file, as JSON")
    parser.add_argument("--host", action="store_true", help="measure only the host's seconds")
    parser.add_argument("--profile", action="store_true", help="also print the kernels of a step")
    args = parser.parse_args()
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    shape, size = ("0.5B", (32, 256, 3840)) if device == "cuda" else ("tiny", (4, 16, 48))
    join(device)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: {shape}, {dist.get_world_size()} rank(s) on {dist.get_backend()}")
    print(f"{'':18}" + "".join(f"{title:>{width}}" for title, width, _ in COLUMNS.values()))
    lines: list[dict[str, float | str]] = []
    failed = 0
    for what in KINDS:
        if time.monotonic() - began > args.seconds:
            print(f"{what:18} left out: over {args.seconds:g} seconds")
            continue
        try:
            line = {f"{kind}_host_seconds": found for kind, found in host_seconds(what, device).items()}
            line |= {} if args.host else compare(what, shape, device, size, args.profile)
        except Exception:
            failed += 1
            print(f"{what:18} failed:\n{traceback.format_exc()}", flush=True)
            continue
        lines.append({"what": what, **line})
        show(what, line)
        if device == "cuda":
            torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "device": name, "lines": lines}, file, indent=1)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

"""Measures what sharding costs: the learner under FSDP2 and the plain learner, with the same packed batches.

    torchrun --nproc-per-node=1 benchmarks/fsdp.py        one GPU: one rank on NCCL, Qwen2.5-0.5B shape, bf16
    python benchmarks/fsdp.py --measure steps --repeats 2 --seconds 45    the short table, in about a minute
    python benchmarks/fsdp.py --quick                     a CPU: one rank on gloo, the tiny model, to check that it runs
    python benchmarks/fsdp.py --measure host              only the host's seconds, on a GPU or a CPU
    python benchmarks/fsdp.py --seconds 240 --json table.json
    python benchmarks/fsdp.py --profile                   also the kernels of a plain and of a sharded step

A step is forward, loss, backward, clipping, optimiser and the host's work around them, over 32 sequences of 4,096
tokens. Full weights and LoRA are measured, with and without recompute. Plain and sharded steps alternate in one
process, and each line is the best of its repetitions, after a step with one micro-batch that is not counted. "kept"
keeps gathered weights until they change, as a run with one rank or with train.gather = "step" does; the other lines
gather a layer's weights each time it runs. With one rank, "full, kept" has all weights in one group, and "LoRA 16,
kept" shards nothing, so only the other lines tell what sharding over several ranks costs the host. "weights to files"
gathers the whole weights and writes them to files (TMPDIR), as an update of a separate engine does. If something fails,
its error is printed, and the other lines are still measured. After --seconds no new pair of lines is begun.

"host" is the time of a step with as many layers, parameters and micro-batches, but with a width of 64 and sequences of
16 tokens. A GPU has almost nothing to compute in it, so this is the time that the host needs to launch all work. The
large step does not show this time, because the host waits for the GPU in it: for the loss, for the norm, and when the
queue of kernels is full. If it is well below the seconds of the large step, the GPU sets the speed. On a CPU, it is the
CPU time of this process, with the small computation (with --quick, of two layers).
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
from interplay.training.tries import Example

Line = dict[str, float]  # one number for each column, or for each way

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
SETUPS = ("full", "LoRA 16", "full, recompute", "LoRA 16, recompute")
WAYS = ("plain", "kept", "gathered")  # the learner without shards, and sharded in two ways


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


def narrow(device: str, layers: int) -> PreTrainedModel:
    """As many parameters in a layer as the 0.5B shape has, and almost nothing to compute."""
    torch.manual_seed(0)
    small = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "vocab_size": 256}
    sizes = {**QWEN["0.5B"], **small, "num_hidden_layers": layers, "max_position_embeddings": 256}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes))
    model.config._attn_implementation = NAME
    return model.to(device=device, dtype=torch.bfloat16).eval()


def learner_of(model: PreTrainedModel, setup: str, way: str, tokens: int) -> LocalLearner:
    """`tokens` are those of a micro-batch."""
    config = TrainSection(micro_batch_tokens=tokens, recompute="recompute" in setup, gap_mean_stop=1e9, gap_stop=1e9)
    adapter = new_adapter(model, 16, 32.0, [], 0) if "LoRA" in setup else None
    if way != "plain":
        shard(model, model.device.type, way == "kept", adapter is not None)
    return LocalLearner("a", model, config, 1e-6, 0, adapter)


def loss(targets: losses.Targets, outputs: losses.Outputs) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return losses.policy_loss(targets, outputs, 0.2, 0.2, None, 0.0, 0.0)


def timed(work: Callable[[], object], device: str, clock: Callable[[], float] = time.perf_counter) -> float:
    sync(device)
    began = clock()
    work()
    sync(device)
    return clock() - began


def alternated(
    learners: dict[str, LocalLearner], batch: list[Example], repeats: int, device: str,
    clock: Callable[[], float] = time.perf_counter,
) -> Line:  # fmt: skip
    """The best seconds of a step of each learner. They alternate, after a step of each with one micro-batch."""
    for learner in learners.values():
        learner.step(batch[:4], Objective(loss))
    seconds: dict[str, list[float]] = {way: [] for way in learners}
    for _ in range(repeats):
        for way, learner in learners.items():
            seconds[way].append(timed(partial(learner.step, batch, Objective(loss)), device, clock))
    return {way: min(found) for way, found in seconds.items()}


def host_seconds(setup: str, device: str, repeats: int, layers: int) -> Line:
    """The host's seconds of a step, with 8 micro-batches of 4 sequences as in the large step."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    learners = {way: learner_of(narrow(device, layers), setup, way, 64) for way in WAYS}
    return alternated(learners, examples_of("a", 32, 4, 12, 256), repeats, device, clock)


def step_seconds(
    setup: str, shape: str, device: str, size: tuple[int, int, int], repeats: int, profiled: bool
) -> tuple[Line, Line]:
    """The seconds of a step, and those in which the weights are gathered and written to files, for every way."""
    learners = {way: learner_of(build(shape, device, torch.bfloat16), setup, way, 16_384) for way in WAYS}
    batch = examples_of("a", *size, learners["plain"].model.config.vocab_size)
    best = alternated(learners, batch, repeats, device)
    for way, learner in learners.items() if profiled else ():
        step = partial(learner.step, batch, Objective(loss))
        print(f"{setup}, {way}:\n{show_kernels(kernels(step, device))}")
    written: Line = {}
    for way in ("kept", "gathered") if setup == "full" else ():
        with tempfile.TemporaryDirectory() as folder:
            model = learners[way].model
            written[way] = timed(partial(write_weights, model, Path(folder) / "weights"), device)
    return best, written


def lines_of(steps: Line, written: Line, host: Line, tokens: int) -> dict[str, Line]:
    """A line for each way of sharding, with what was measured."""
    lines: dict[str, Line] = {}
    for way in ("kept", "gathered") if steps or host else ():
        lines[way] = line = {}
        if steps:
            line["plain_tokens_per_second"] = tokens / steps["plain"]
            line["fsdp_tokens_per_second"] = tokens / steps[way]
            line["share_percent"] = 100 * steps["plain"] / steps[way]
            line["plain_seconds"], line["fsdp_seconds"] = steps["plain"], steps[way]
        if host:
            line["plain_host_seconds"], line["fsdp_host_seconds"] = host["plain"], host[way]
        if way in written:
            line["weights_seconds"] = written[way]
    return lines


def show(what: str, line: Line) -> None:
    found = (f"{line[key]:{form}}" if key in line else "-" for key, (_, _, form) in COLUMNS.items())
    widths = (width for _, width, _ in COLUMNS.values())
    print(f"{what:26}" + "".join(f"{text:>{width}}" for text, width in zip(found, widths, strict=True)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny model on a CPU: only checks that it runs")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no lines after this many seconds")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file, as JSON")
    parser.add_argument(
        "--measure", choices=("both", "steps", "host"), default="both", help="large steps, the host's seconds, or both"
    )
    parser.add_argument("--repeats", type=int, default=3, help="steps of each kind, of which the best counts")
    parser.add_argument("--profile", action="store_true", help="also print the kernels of a step")
    args = parser.parse_args()
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    shape, size = ("0.5B", (32, 256, 3840)) if device == "cuda" else ("tiny", (4, 16, 48))
    join(device)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: {shape}, {dist.get_world_size()} rank(s) on {dist.get_backend()}")
    print(f"{'':26}" + "".join(f"{title:>{width}}" for title, width, _ in COLUMNS.values()))
    lines: list[dict[str, float | str]] = []
    failed = 0
    for setup in SETUPS:
        if time.monotonic() - began > args.seconds:
            print(f"{setup:26} left out: over {args.seconds:g} seconds")
            continue
        steps, written, host = Line(), Line(), Line()
        try:
            if args.measure != "host":
                steps, written = step_seconds(setup, shape, device, size, args.repeats, args.profile)
            if args.measure != "steps":
                host = host_seconds(setup, device, args.repeats, 2 if args.quick else QWEN["0.5B"]["num_hidden_layers"])
        except Exception:
            failed += 1
            print(f"{setup:26} failed:\n{traceback.format_exc()}", flush=True)
        for way, line in lines_of(steps, written, host, size[0] * (size[1] + size[2])).items():
            what = f"{setup}, kept" if way == "kept" else setup
            lines.append({"what": what, **line})
            show(what, line)
        if device == "cuda":
            torch.cuda.empty_cache()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "device": name, "lines": lines}, file, indent=1)
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

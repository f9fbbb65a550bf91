"""Measures a whole training step of Interplay and of TRL in one run: sums ("What is a + b?"), 32 prompts × 8 replies of
at most 128 tokens, GRPO, one policy, full weights.

    python benchmarks/end_to_end.py --model smollm2          one GPU, SmolLM2-135M-Instruct, bf16 (TRL: pip install trl)
    python benchmarks/end_to_end.py --model tiny --quick     a CPU: only checks that it runs
    python benchmarks/end_to_end.py --model FOLDER --json table.json
    python benchmarks/end_to_end.py --model FOLDER --cold    only the cold start: a new program up to its first step
    python benchmarks/end_to_end.py --model FOLDER --no-cold all but the cold start
    python benchmarks/end_to_end.py --model FOLDER --updates only our steps with an update
    git worktree add ../old f7ce2f1
    python benchmarks/end_to_end.py --model FOLDER --updates --old ../old    the same of an older commit, by turns

Both use the same model, prompts per step, replies per prompt, length limit, learning rate and reward; everything else
in TRL keeps its default. The first steps of each (compilation, graphs, allocation) are left out, and the result is the
median of the others. Replies whose group is all right or all wrong have no gradient, so Interplay does not compute
them; the second row for Interplay computes every reply anyway. The cold start is measured twice: first with no compiled
kernel on the disk, then with those that the first program compiled.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from interplay.config import load
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer

ROOT = Path(__file__).resolve().parents[1]
EVERY = "interplay, every reply computed"


def ours(
    model: str, steps: int, tokens: int, tasks: int, every: bool, changes: list[str], tree: Path = ROOT
) -> list[dict[str, float]]:
    """Our steps, with the package of this process and the recipe of its checkout."""
    overrides = [
        f"algorithm.entropy={1e-12 if every else 0.0}",
        f'policies.solver.base="{model}"', f"train.steps={steps}", f"sampling.max_tokens={tokens}", "train.lr=1e-6",
        f"rollout.tasks={tasks}", "checkpoint.every=100000", "records.episodes_per_step=0", "records.tensorboard=off",
        *changes,
    ]  # fmt: skip
    out: list[dict[str, float]] = []
    last = time.perf_counter()

    def stepped(step: int, metrics: Any) -> None:
        nonlocal last
        now = time.perf_counter()
        seen = {"seconds": now - last, "reward": metrics.get("reward", math.nan), "tokens": metrics["tokens_sampled"]}
        seen |= {k: v for k, v in metrics.items() if k.startswith("seconds/") or k.endswith(("gap", "gap_mean"))}
        out.append(seen)
        print("  ours  " + "  ".join(f"{k} {v:.3f}" for k, v in seen.items()), flush=True)
        last = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        plan = resolve(load(tree / "recipes" / "sums" / "grpo.toml", overrides))
        trainer = Trainer(plan, Path(folder), Observer(stepped=stepped))
        trainer.train()
        trainer.close()
    return out


def cold(model: str, tokens: int, tasks: int) -> dict[str, dict[str, float]]:
    """Two starts: without compiled kernels, and with those that the first start compiled."""
    found = {}
    with tempfile.TemporaryDirectory() as kernels:
        for name in ("nothing compiled", "kernels compiled"):
            program = str(Path(__file__).with_name("first_step.py"))
            command = [sys.executable, program, "--model", model, "--tokens", str(tokens), "--tasks", str(tasks)]
            env = {**os.environ, "TRITON_CACHE_DIR": kernels}
            command += ["--spawned", str(time.time())]
            done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
            at = found[name] = json.loads(done.stdout.strip().splitlines()[-1])
            print(
                f"cold start, {name}: imported after {at['imported']:.1f} s, model and engine ready after "
                f"{at['loaded']:.1f} s, first step done after {at['stepped']:.1f} s; {at['cpu']:.1f} s of CPU time",
                flush=True,
            )
    return found


def trl(model: str, steps: int, tokens: int, tasks: int) -> list[dict[str, float]]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    rng = random.Random(0)
    pairs = [(rng.randint(1, 99), rng.randint(1, 99)) for _ in range(tasks * steps)]
    rows = [{"prompt": [{"role": "user", "content": f"What is {a} + {b}?"}], "total": a + b} for a, b in pairs]

    def correct(completions: list[Any], total: list[int], **_: Any) -> list[float]:
        found = [re.findall(r"-?\d+", c[0]["content"].replace(",", "")) for c in completions]
        return [float(bool(f) and len(f[-1]) < 20 and int(f[-1]) == t) for f, t in zip(found, total, strict=True)]

    out: list[dict[str, float]] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            out.append({"seconds": time.perf_counter() - self.began})
            print(f"  trl   seconds {out[-1]['seconds']:.3f}", flush=True)

    gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=8 * tasks, num_generations=8, max_completion_length=tokens,
            learning_rate=1e-6, max_steps=steps, bf16=gpu, use_cpu=not gpu, report_to=[], save_strategy="no",
            logging_steps=1000, model_init_kwargs={"dtype": torch.bfloat16 if gpu else torch.float32},
        )  # fmt: skip
        trainer = GRPOTrainer(
            model=model, reward_funcs=correct, args=config, train_dataset=Dataset.from_list(rows), callbacks=[Clock()]
        )
        trainer.train()
    return out


def median(steps: list[dict[str, float]]) -> float:
    """The seconds of a step. The first steps prepare, and the last one also writes the checkpoint."""
    return statistics.median(m["seconds"] for m in steps[3:-1])


def by_turns(args: argparse.Namespace, folder: str) -> dict[str, list[list[dict[str, float]]]]:
    """Steps with an update of an older checkout and of this one, each in a process of its own."""
    trees = {"old": args.old.resolve(), "new": ROOT}
    found: dict[str, list[list[dict[str, float]]]] = {name: [] for name in trees}
    given = ["--updates", "--model", folder, "--steps", str(args.steps), *(["--quick"] if args.quick else [])]
    for pair in range(args.pairs):
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory() as out:
                table = Path(out) / "table.json"
                command = [sys.executable, __file__, *given, "--inside", str(tree), "--json", str(table)]
                env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), *_other_paths()])}
                done = subprocess.run([*command, "--set", *args.set], env=env, capture_output=True, text=True)
                if done.returncode:
                    raise SystemExit(f"the run with {tree} failed:\n{done.stderr[-4000:]}")
                found[name].append(json.loads(table.read_text(encoding="utf-8"))[EVERY])
            print(f"pair {pair}  {name}  {median(found[name][-1]):.3f} s a step", flush=True)
    ratios = [median(old) / median(new) for old, new in zip(found["old"], found["new"], strict=True)]
    said = "  ".join(f"{ratio:.3f}" for ratio in ratios)
    print(f"speed of the new one, old = 1: {said}; median {statistics.median(ratios):.3f}")
    for key in sorted({key for runs in found.values() for run in runs for key in run[-1] if key.startswith("seconds")}):
        parts = (
            statistics.fmean(statistics.median(step.get(key, 0.0) for step in run[3:-1]) for run in found[name])
            for name in trees
        )
        print(f"{key:<20}" + "".join(f"{name:>6} {part:.4f}" for name, part in zip(trees, parts, strict=True)))
    return found


def _other_paths() -> list[str]:
    """The folders of PYTHONPATH that do not hold this checkout's package."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in given if path and not (Path(path) / "interplay").is_dir()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="the model: a name or a folder")
    parser.add_argument("--steps", type=int, default=10, help="our training steps")
    parser.add_argument("--trl-steps", type=int, default=6, help="0 leaves TRL out")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to our recipe: stream.probe=0"
    )
    parser.add_argument("--quick", action="store_true", help="a small model on a CPU: only checks that it runs")
    parser.add_argument("--cold", action="store_true", help="measure only the cold start")
    parser.add_argument("--no-cold", action="store_true", help="do not measure the cold start")
    parser.add_argument("--updates", action="store_true", help="measure only our steps with an update")
    parser.add_argument("--old", type=Path, help="with --updates: a checkout of an older commit, to compare with")
    parser.add_argument("--pairs", type=int, default=3, help="with --old: how often both checkouts are measured")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file, as JSON")
    parser.add_argument("--inside", type=Path, default=ROOT, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.old is not None and not args.updates:
        parser.error("--old compares steps with an update; expected --updates beside it.")
    tokens, tasks = (8, 4) if args.quick else (128, 32)
    folder = args.model
    if args.inside == ROOT:  # an older package may keep it elsewhere
        from interplay.models.locate import locate

        folder = locate(args.model, 0)
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{hardware}, torch {torch.__version__}, {args.model}: {8 * tasks} replies of at most {tokens} tokens a step")
    table: dict[str, Any] = {"hardware": hardware, "torch": torch.__version__}
    if args.cold and args.no_cold:
        parser.error("--cold measures only what --no-cold leaves out; expected one of them.")
    if not (args.updates or args.no_cold):
        table["cold"] = cold(folder, tokens, tasks)
    ways = {} if args.cold or args.old else {"interplay": False, EVERY: True}
    if args.updates:
        ways.pop("interplay", None)
    if args.old is not None:
        table |= by_turns(args, folder)
    medians = {}
    for name, every in ways.items():
        steps = table[name] = ours(folder, args.steps, tokens, tasks, every, args.set, args.inside)
        medians[name] = median(steps)
        rate = statistics.median(m["tokens"] / m["seconds"] for m in steps[3:-1])
        print(f"{name}: {medians[name]:.3f} s a step ({rate:,.0f} sampled tokens/s)", flush=True)
    if args.trl_steps and not (args.cold or args.updates):
        theirs = trl(folder, args.trl_steps, tokens, tasks)
        b = statistics.median(m["seconds"] for m in theirs[1:])
        table |= {"trl": theirs, "ratios": {name: b / a for name, a in medians.items()}}
        print(f"TRL: {b:.3f} s a step")
        for name, a in medians.items():
            print(f"{name}: {b / a:.1f} times faster")
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

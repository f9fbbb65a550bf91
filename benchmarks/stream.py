"""Measures how much faster asynchronous training is, and whether it harms learning.

    python benchmarks/stream.py speed [--model tiny-256x6]       one GPU: a tool that waits 1 to 3 seconds
    python benchmarks/stream.py speed --quick                    a CPU: the tiny model, a tool that waits 0.1 to 0.3 s
    python benchmarks/stream.py learning [--seeds 5] [--jobs 2]  a CPU: does stale data harm learning?

`speed` trains recipes/math/calculator.toml in four arms with the same number of tool workers. In three arms no episode
waits for the tool of another one, with `stream.max_staleness` of 0, 1 and 2. In the fourth all episodes wait for the
slowest tool (`stream.deterministic`). The first three steps of each arm and the last one are left out.

`learning` trains the demo of tic-tac-toe with max_staleness 0 and 1 on each seed. It compares the share of points (a
win counts 1, a draw 0.5) against both opponents of the recipe after training: the mean and the 95% interval over the
seeds, paired.

Both use `algorithm.correction = "tis"` in every arm, because stale tokens need it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from interplay.config import load
from interplay.evaluation.intervals import mean
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer

ROOT = Path(__file__).resolve().parents[1]
ARMS = {
    "S = 0": ("stream.deterministic=false", "stream.max_staleness=0"),
    "S = 1": ("stream.deterministic=false", "stream.max_staleness=1"),
    "S = 0, everybody waits": ("stream.deterministic=true", "stream.max_staleness=0"),
    "S = 2": ("stream.deterministic=false", "stream.max_staleness=2"),
}
# With these settings a model that starts from random weights learns to call the tool.
TINY = ("warmstart.lr=3e-3", "warmstart.episodes=60", "warmstart.epochs=14", "train.lr=1e-4", "env.largest=9")
QUICK = ("rollout.tasks=4", "env.shortest=0.1", "env.longest=0.3")


def train(arm: str, overrides: list[str]) -> dict[str, float]:
    """Train one arm; returns the means over its steps."""
    steps: list[dict[str, float]] = []
    last = time.perf_counter()

    def stepped(step: int, metrics: Any) -> None:
        nonlocal last
        now = time.perf_counter()
        steps.append({**metrics, "seconds": now - last})
        last = now

    from waiting import WaitingMath

    def ready() -> None:
        WaitingMath.waits = True

    WaitingMath.waits = False  # until the warm start is done
    recipe = load(ROOT / "recipes" / "math" / "calculator.toml", overrides)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(resolve(recipe), Path(folder), Observer(ready=ready, stepped=stepped))
        trainer.train()
        trainer.close()
    kept = steps[3:-1]  # the last one also writes the checkpoint
    assert kept, f"{arm}: only {len(steps)} steps were taken"
    wanted = {"seconds": "seconds", "staleness": "stream/staleness", "masked": "stream/masked", "idle": "stream/idle"}
    out = {name: statistics.mean(m.get(key, 0.0) for m in kept) for name, key in wanted.items()}
    out["tools"] = statistics.mean(m.get("tool_calls", 0.0) for m in kept)
    out["rollout"] = statistics.mean(m["seconds/rollout"] for m in kept)
    out["steps_per_hour"] = 3600 / out["seconds"]
    print(f"{arm:24} " + "  ".join(f"{k} {v:.3f}" for k, v in out.items()), flush=True)
    return out


def speed(args: argparse.Namespace) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parent))  # where env.name = "waiting:WaitingMath" is found
    common = [
        "env.name=waiting:WaitingMath", f"train.steps={args.steps}", "eval.every=0", "checkpoint.every=100000",
        "tools.workers=512", "algorithm.correction=tis", "records.episodes_per_step=0", "records.tensorboard=off",
    ]  # fmt: skip
    model = "tiny-64x2" if args.quick else args.model
    common += [f'policies.reasoner.base="{model}"', *(TINY if model.startswith("tiny") else ())]
    common += QUICK if args.quick else ()
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{hardware}, torch {torch.__version__}, {model}; one run an arm, means over {args.steps - 4} steps")
    found = {arm: train(arm, [*common, *overrides]) for arm, overrides in list(ARMS.items())[: args.arms]}
    base = found["S = 0"]["steps_per_hour"]
    for arm, row in found.items():
        print(f"{arm:24} {row['steps_per_hour']:8.1f} steps per hour, {row['steps_per_hour'] / base:.2f} of S = 0")
    return {"hardware": hardware, "torch": torch.__version__, "arms": found}


def final_score(seed: int, staleness: int, extra: list[str]) -> float:
    """The share of points that the demo wins after training, in per cent."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from interplay.cli.main import main; main()", "train"]
        command += [str(ROOT / "recipes" / "tictactoe" / "demo.toml"), "--run", folder, f"seed={seed}"]
        command += [f"stream.max_staleness={staleness}", "algorithm.correction=tis"]
        command += ["eval.before=false", "eval.every=0"]
        command += ["checkpoint.every=1000", "records.tensorboard=off", "records.episodes_per_step=0", *extra]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        rows = json.loads((Path(folder) / "report.json").read_text())["results"]["after"]
    games = sum(row["games"] for row in rows)
    score = 100 * sum(row["wins"] + 0.5 * row["draws"] for row in rows) / games
    print(f"seed {seed}, max_staleness {staleness}: {score:.1f}", flush=True)
    return score


def learning(args: argparse.Namespace) -> dict[str, Any]:
    extra = ["train.steps=3", "warmstart.episodes=60", "rollout.tasks=4", "eval.games=4"] if args.quick else []
    jobs = [(seed, staleness) for seed in range(args.seeds) for staleness in (0, 1)]
    with ThreadPoolExecutor(args.jobs) as pool:
        scores = dict(zip(jobs, pool.map(lambda job: final_score(*job, extra), jobs), strict=True))
    table: dict[str, Any] = {"scores": [[*job, score] for job, score in scores.items()]}
    for staleness in (0, 1):
        found = mean([scores[seed, staleness] for seed in range(args.seeds)])
        print(f"S = {staleness}: {found.value:.1f} [{found.low:.1f}, {found.high:.1f}], {args.seeds} seeds")
    differences = mean([scores[seed, 1] - scores[seed, 0] for seed in range(args.seeds)])
    print(f"S = 1 minus S = 0: {differences.value:+.1f} [{differences.low:+.1f}, {differences.high:+.1f}] points")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "learning"], help="what to measure, as described above")
    parser.add_argument("--model", default="tiny-256x6", help="speed: the model")
    parser.add_argument("--steps", type=int, default=20, help="speed: training steps of an arm")
    parser.add_argument("--arms", type=int, default=len(ARMS), help="speed: how many of its arms, in their order")
    parser.add_argument("--seeds", type=int, default=5, help="learning: number of seeds")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--quick", action="store_true", help="small; only checks that it runs")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file, as JSON")
    args = parser.parse_args()
    table = speed(args) if args.what == "speed" else learning(args)
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

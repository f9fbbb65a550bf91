"""Measures the CPU time of a training step with a tiny model, mostly the host's own work, of one or two checkouts.

    python benchmarks/host.py                               this checkout alone
    git worktree add ../old f7ce2f1
    python benchmarks/host.py --old ../old                  three pairs, old and new by turns
    python benchmarks/host.py --old ../old --functions 20   the functions whose own time differs most

It trains recipes/sums/grpo.toml with the model tiny-16x1: 256 replies of up to 64 tokens a step. Nearly always
all replies of a group earn the same, so nothing is trained, and a step is rollout, credit and metrics. Every run is a
process of its own with one thread of torch. CPU time counts all its threads, so it hardly depends on what else the
machine does. With `--functions` the runs are profiled, which makes small functions look more expensive than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SKIP = 3  # steps that are not counted: the first ones fill caches
OVERRIDES = (
    "policies.solver.base=tiny-16x1", "sampling.max_tokens=64", "rollout.tasks=32", "train.lr=1e-6",
    "checkpoint.every=100000", "records.episodes_per_step=0", "records.tensorboard=off", "device=cpu",
)  # fmt: skip
Own = dict[str, tuple[int, float]]  # by function: calls, and seconds in it without those of what it calls


@dataclass(frozen=True)
class Measured:
    """CPU seconds of each counted step, and the functions of all steps if they were profiled."""

    steps: list[float]
    functions: Own

    @property
    def median(self) -> float:
        return statistics.median(self.steps)


def inside(tree: Path, steps: int, profiled: bool) -> dict[str, Any]:
    """Train with the package of this process, and return the times of the counted steps."""
    import torch

    from interplay.config import load
    from interplay.rollout.resolve import resolve
    from interplay.training.trainer import Observer, Trainer

    torch.set_num_threads(1)
    profiles = [cProfile.Profile(time.thread_time)]
    if profiled:
        _profile_threads(profiles)
    times: list[float] = []
    last = time.process_time()

    def stepped(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal last
        now = time.process_time()
        times.append(now - last)
        last = now

    plan = resolve(load(tree / "recipes/sums/grpo.toml", [*OVERRIDES, f"train.steps={steps + SKIP}"]))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(plan, Path(folder), Observer(stepped=stepped))
        if profiled:
            profiles[0].runcall(trainer.train)
        else:
            trainer.train()
        trainer.close()
    return {"steps": times[SKIP:], "functions": _functions(profiles) if profiled else {}}


def _profile_threads(profiles: list[cProfile.Profile]) -> None:
    """Profile every thread that begins from now on."""
    run = threading.Thread.run

    def watched(self: threading.Thread) -> None:
        mine = cProfile.Profile(time.thread_time)
        profiles.append(mine)
        mine.runcall(run, self)

    threading.Thread.run = watched  # type: ignore[method-assign]


def _functions(profiles: Sequence[cProfile.Profile]) -> dict[str, tuple[int, float]]:
    """Functions are identified by name alone, because files were moved between the commits."""
    out: Own = defaultdict(lambda: (0, 0.0))
    for profile in profiles:
        for (_, _, name), (_, calls, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
            out[name] = (out[name][0] + calls, out[name][1] + own)
    return dict(out)


def measure(tree: Path, steps: int, profiled: bool) -> Measured:
    env = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    given = ["--inside", str(tree), "--steps", str(steps), "--functions", str(int(profiled))]
    done = subprocess.run([sys.executable, __file__, *given], env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the run with {tree} failed:\n{done.stderr[-4000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def show_functions(found: Mapping[str, Sequence[Measured]], most: int) -> None:
    """The functions with the largest own time, or with the largest difference if there are two checkouts. How many
    calls a step makes does not depend on the machine's speed."""
    sums: dict[str, Own] = {}
    for name, runs in found.items():
        steps = sum(SKIP + len(run.steps) for run in runs)
        sums[name] = {f: (0, 0.0) for run in runs for f in run.functions}
        for run in runs:
            for f, (calls, own) in run.functions.items():
                sums[name][f] = (sums[name][f][0] + calls, sums[name][f][1] + own / steps)
        print(f"{name}: {sum(calls for calls, _ in sums[name].values()) / steps:,.0f} calls of functions a step")
    new, old = sums["new"], sums.get("old", {})
    nothing = (0, 0.0)
    gap = {f: new.get(f, nothing)[1] - old.get(f, nothing)[1] for f in new.keys() | old.keys()}
    print(f"{'function':<60}{'calls':>24}{'own ms a step':>24}{'more':>10}")
    for f in sorted(gap, key=lambda f: -abs(gap[f]))[:most]:
        (c0, t0), (c1, t1) = old.get(f, nothing), new.get(f, nothing)
        print(f"{f[:58]:<60}{c0:>11,} {c1:>12,}{1e3 * t0:>11.2f} {1e3 * t1:>12.2f}{1e3 * gap[f]:>+10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a checkout of the older commit")
    parser.add_argument("--pairs", type=int, default=3, help="how often both checkouts are measured")
    parser.add_argument("--steps", type=int, default=8, help="counted steps of a run")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="profile, and print N functions")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside is not None:
        print(json.dumps(inside(given.inside, given.steps, bool(given.functions))))
        return
    trees = {"new": ROOT} if given.old is None else {"old": given.old.resolve(), "new": ROOT}
    found: dict[str, list[Measured]] = {name: [] for name in trees}
    for pair in range(given.pairs):
        for name, tree in trees.items():
            found[name].append(measure(tree, given.steps, bool(given.functions)))
            print(f"run {pair}  {name}  {found[name][-1].median:.3f} s of CPU a step", flush=True)
    for name, runs in found.items():
        print(f"median of {len(runs)}, {name}: {statistics.median(run.median for run in runs):.3f} s of CPU a step")
    if given.old is not None:
        ratios = [old.median / new.median for old, new in zip(found["old"], found["new"], strict=True)]
        said = "  ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"speed of the new one, old = 1: {said}; median {statistics.median(ratios):.3f}")
    if given.functions:
        show_functions(found, given.functions)


if __name__ == "__main__":
    main()

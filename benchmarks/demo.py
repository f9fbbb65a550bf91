"""Compares the demo (recipes/tictactoe/demo.toml) of an older checkout with this one: CPU seconds, wall time, results.

    git worktree add ../old f7ce2f1
    python benchmarks/demo.py --old ../old                  three pairs, one for each of the seeds 0, 1 and 2
    python benchmarks/demo.py --old ../old --recipe old --pairs 2 --set train.steps=16 eval.every=0
    python benchmarks/demo.py                               this checkout alone

Every run is a command in a process of its own, old and new by turns. CPU seconds are those of the whole command with
all its threads, so they hardly depend on what else the machine does; wall time does. By default each checkout trains
its own recipe, which compares two demos. With `--recipe old` both train the older one, which compares the code.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECIPE = Path("recipes/tictactoe/demo.toml")
RANDOM, PERFECT = "bot:random", "bot:minimax"


@dataclass(frozen=True)
class Trained:
    """What one run cost and reached. The shares are None if the run was not evaluated at its end."""

    cpu: float
    wall: float
    wins: float | None  # against random play, over both seats
    draws: float | None  # against the perfect player, over both seats

    def __str__(self) -> str:
        said = f"{self.cpu:7.1f} s of CPU, {self.wall:7.1f} s"
        if self.wins is None or self.draws is None:
            return said
        return f"{said}, {self.wins:.1%} wins against random, {self.draws:.1%} draws against perfect play"


def train(tree: Path, recipe: Path, threads: int, overrides: Sequence[str]) -> Trained:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    limits = dict.fromkeys(names, str(threads)) if threads else {}
    env = {**os.environ, **limits, "PYTHONPATH": str(tree / "src"), "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", "from interplay.cli.main import main; main()", "train", str(recipe)]
        said = (Path(folder) / "said.txt").open("w+", encoding="utf-8")
        began = time.monotonic()
        with said:
            job = subprocess.Popen([*command, "--run", str(run), *overrides], env=env, stdout=said, stderr=said)
            _, status, used = os.wait4(job.pid, 0)
            job.returncode = os.waitstatus_to_exitcode(status)
            wall = time.monotonic() - began
            if job.returncode:
                said.seek(0)
                raise SystemExit(f"training {recipe} with {tree} failed:\n{said.read()[-4000:]}")
        return Trained(used.ru_utime + used.ru_stime, wall, _share(run, RANDOM, "wins"), _share(run, PERFECT, "draws"))


def _share(run: Path, opponent: str, what: str) -> float | None:
    """The share of games after training with this result, over both seats."""
    report = run / "report.json"
    results = json.loads(report.read_text(encoding="utf-8"))["results"] if report.is_file() else {}
    rows = [row for row in results.get("after", ()) if row["opponent"] == opponent]
    return sum(row[what] for row in rows) / sum(row["games"] for row in rows) if rows else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a checkout of the older commit")
    parser.add_argument("--recipe", choices=("own", "old"), default="own", help="whose recipe this checkout trains")
    parser.add_argument("--pairs", type=int, default=3, help="number of pairs; pair i has seed i")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch; 0: its own default")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to both recipes")
    given = parser.parse_args()
    if given.recipe == "old" and given.old is None:
        parser.error("--recipe old needs --old, the checkout that has the recipe.")
    trees = {"new": ROOT} if given.old is None else {"old": given.old.resolve(), "new": ROOT}
    recipes = {name: (trees["old"] if given.recipe == "old" else tree) / RECIPE for name, tree in trees.items()}
    found: dict[str, list[Trained]] = {name: [] for name in trees}
    for seed in range(given.pairs):
        for name, tree in trees.items():
            done = train(tree, recipes[name], given.threads, [f"seed={seed}", *given.set])
            found[name].append(done)
            print(f"seed {seed}  {name}  {done}", flush=True)
    for name, runs in found.items():
        cpu, wall = (statistics.median(getattr(r, what) for r in runs) for what in ("cpu", "wall"))
        print(f"median of {len(runs)}, {name}: {cpu:.1f} s of CPU, {wall:.1f} s")
    if given.old is not None:
        for what in ("cpu", "wall"):
            pairs = zip(found["old"], found["new"], strict=True)
            ratios = [getattr(new, what) / getattr(old, what) for old, new in pairs]
            said = "  ".join(f"{ratio:.3f}" for ratio in ratios)
            print(f"{what}, new / old: {said}; median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()

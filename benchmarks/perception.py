"""Whether tiny models learn to see and hear, and what each sense contributes: trains recipes/vision and measures.

    python benchmarks/perception.py                      plan_path: find the way in pictures
    python benchmarks/perception.py hearing              spoken orders by new voices, at new speeds, with noise
    python benchmarks/perception.py spotter_pilot        one sees, one hears, they must talk
    python benchmarks/perception.py fusion               one sees and hears
    python benchmarks/perception.py --device cuda        on a GPU
    python benchmarks/perception.py --seconds 300        the longest time for imitation and training (default 480)
    python benchmarks/perception.py --folder kept        keep the run there; a run that was stopped continues
    python benchmarks/perception.py --ceilings           the ceilings alone, without a model
    python benchmarks/perception.py --json table.json    also write the lines as JSON
    python benchmarks/perception.py --mean a.json b.json the mean of each line over runs that wrote such files, the 95%
                                                         interval (Student's t), and the value of each run
    python benchmarks/perception.py plan_path train.lr=5e-4   with changes to the recipe

Seconds are those of the processor on a CPU, so that other programs on the machine do not count, and those of a clock on
a GPU.

The policies are measured on held-out tasks before training, after imitation and after training, with temperature 1 and
legal replies only, as in training. They are then measured without a sense: with a grey picture, with the picture of
another board, or with noise in place of the sound. With two policies, each is also replaced by its untrained weights.

Ceilings are exact. In plan_path, a player that sees nothing gives the same probabilities p(U), p(D), p(L), p(R) in
every turn; the legal moves among them are scaled to add up to 1. Its ceiling is the largest share of boards that such a
player solves: every board of the test split is enumerated with the probability that the environment draws it, its
chance to be solved within the turns allowed is computed, and p is searched. A picture of another board does not depend
on the board that is played, and it stays the same during an episode, so the same ceiling holds for it. In the other
tasks, all tasks are enumerated, and the best reply to what is left without a sense is counted.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from interplay.config import load
from interplay.envs.games.grid import DIRECTIONS, distances, neighbours
from interplay.envs.games.spotter_pilot import ORDERS, SIGNS
from interplay.envs.splits import split_of
from interplay.evaluation.field import Field
from interplay.evaluation.intervals import mean, wilson
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training import checkpoint
from interplay.training.trainer import Observer, Trainer

RECIPES = Path(__file__).parents[1] / "recipes" / "vision"
MUTED = {  # changes that take a sense away
    "plan_path": ("env.shown=blank", "env.shown=other"),
    "hearing": (),
    "spotter_pilot": ("env.mute=picture", "env.mute=sound"),
    "fusion": ("env.mute=picture", "env.mute=sound"),
}


@dataclass
class PerceptionLine:
    what: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Boards:
    """All boards of a split. `ways_GCM` has the cell to which each move leads from each cell of each (walls, goal), or
    -1; the goal leads to itself. `weights_GC` is the probability of each start, `turns_GC` the turns allowed there."""

    ways_GCM: np.ndarray
    goals_G: np.ndarray
    weights_GC: np.ndarray
    turns_GC: np.ndarray


def boards(size: int, walls: int, split: str) -> Boards:
    """Enumerate Plan-Path as `PlanPath.draw` draws it: walls and goal are uniform, then the start among those from
    which the goal can be reached; a board of another split is drawn again."""
    cells = size * size
    ways, goals, weights, turns = [], [], [], []
    for wall in itertools.combinations(range(cells), walls):
        table = neighbours(size, frozenset(wall))
        for goal in (c for c in range(cells) if c not in wall):
            distance = distances(table, goal)
            starts = [c for c in distance if c != goal]
            row = np.zeros(cells)
            for start in starts:
                if split_of(f"{size} {list(wall)} {start} {goal}") == split:
                    row[start] = 1 / len(starts)
            if row.any():
                ways.append([[table[c].get(m, -1) for m in DIRECTIONS] for c in range(cells)])
                goals.append(goal)
                weights.append(row)
                turns.append([2 * distance.get(c, 0) + 2 for c in range(cells)])
    found = np.stack(weights)
    return Boards(np.array(ways), np.array(goals), found / found.sum(), np.array(turns))


def solved_blind(all_boards: Boards, p: np.ndarray) -> float:
    """The share of boards that a player with these probabilities of the four moves solves."""
    b = all_boards
    legal = b.ways_GCM >= 0
    chances = np.where(legal, p, 0.0)
    total = chances.sum(-1, keepdims=True)
    chances = np.divide(chances, total, out=np.zeros_like(chances), where=total > 0)
    to = np.where(legal, b.ways_GCM, 0)
    every = np.arange(len(b.goals_G))
    reached = np.zeros(b.weights_GC.shape)
    reached[every, b.goals_G] = 1.0
    result = 0.0
    for turn in range(1, int(b.turns_GC[b.weights_GC > 0].max()) + 1):
        after = (chances * reached[every[:, None, None], to]).sum(-1)
        after[every, b.goals_G] = 1.0
        reached = after
        result += float((b.weights_GC * reached)[b.turns_GC == turn].sum())
    return result


def ceiling(all_boards: Boards) -> tuple[float, np.ndarray]:
    """The best such player, by hill climbing from equal probabilities and from every order of preference."""

    def chances(logits: np.ndarray) -> np.ndarray:
        e = np.exp(logits - logits.max())
        return np.asarray(e / e.sum())

    def lost(logits: np.ndarray) -> float:
        return -solved_blind(all_boards, chances(logits))

    starts = [np.zeros(4)] + [np.array(order, float) for order in itertools.permutations((0.0, 1.0, 2.0, 3.0))]
    limits = {"xatol": 0.02, "fatol": 1e-5}
    found = [minimize(lost, s, method="Nelder-Mead", options=limits) for s in sorted(starts, key=lost)[:2]]
    best = min(found, key=lambda f: float(f.fun))
    return -float(best.fun), chances(best.x)


class Table:
    def __init__(self) -> None:
        self.lines: list[PerceptionLine] = []

    def share(self, what: str, wins: int, games: int) -> None:
        low, high = wilson(wins, games)
        self.add(what, 100 * wins / games, 100 * low, 100 * high)

    def add(self, what: str, value: float, low: float | None = None, high: float | None = None) -> None:
        line = PerceptionLine(what, value, value if low is None else low, value if high is None else high)
        self.lines.append(line)
        interval = "" if low is None else f"  ({line.low:.1f}–{line.high:.1f})"
        print(f"{what:44} {value:9,.1f}{interval}", flush=True)


def ceilings(table: Table, task: str, options: Mapping[str, Any]) -> None:
    if task == "plan_path":
        size = int(options["size"])
        found = boards(size, round(options["walls"] * size * size), "test")
        table.add("boards of the test split", int((found.weights_GC > 0).sum()))
        value, p = ceiling(found)
        table.add("ceiling without seeing, %", 100 * value)
        print("with " + ", ".join(f"p({m}) = {x:.2f}" for m, x in zip(DIRECTIONS, p, strict=True)), flush=True)
    elif task == "hearing":
        table.add("ceiling without hearing, %", 100 / len(DIRECTIONS) ** int(options["length"]))
    else:
        doors, total = range(len(SIGNS)), len(ORDERS) * len(SIGNS)
        rows = [order.split() for order in ORDERS]
        blind = sum(max(sum(row[n] == wanted for row in rows) for n in doors) for wanted in SIGNS)
        deaf = sum(max(sum(row[n] == wanted for wanted in SIGNS) for n in doors) for row in rows)
        table.add("ceiling without seeing, %", 100 * blind / total)
        table.add("ceiling without hearing, %", 100 * deaf / total)


def measured(task: str, changes: Sequence[str], weights: Mapping[str, str], games: int) -> tuple[int, int]:
    """Successes and games of these weights on tasks of the test split. A policy without weights is untrained."""
    plan = resolve(load(RECIPES / f"{task}.toml", changes), training=False)
    team = Team(plan.recipe, weights)
    try:
        episodes = asyncio.run(Field(plan, team, games).play(plan.seats))
    finally:
        team.close()
    name = plan.recipe.eval.success
    wins = sum(any(r.name == name and r.value == 1.0 for r in e.rewards) for e in episodes)
    return wins, len(episodes)


class Stopwatch:
    """Seconds of imitation and of the whole run, which a continued run adds to those of its earlier parts."""

    def __init__(self, folder: Path, device: str) -> None:
        self._now = time.process_time if device == "cpu" else time.monotonic
        self._file = folder / "seconds.json"
        self.imitation, self._before = json.loads(self._file.read_text()) if self._file.exists() else (0.0, 0.0)
        self._began = self._now()

    @property
    def total(self) -> float:
        return self._before + self._now() - self._began

    def keep(self) -> None:
        self._file.write_text(json.dumps([self.imitation, self.total]))


def trained(table: Table, task: str, folder: Path, changes: Sequence[str], seconds: float) -> dict[str, dict[str, str]]:
    """Train for at most this many seconds, imitation included. The weights after imitation and after training."""
    plan = resolve(load(RECIPES / f"{task}.toml", changes))
    watch = Stopwatch(folder, plan.recipe.device)
    trainer = Trainer(plan, folder)

    def ready() -> None:
        if (folder / "imitated").exists():  # a continued run
            return
        start = checkpoint.latest(folder / "checkpoints")
        assert start is not None
        for name in plan.trainable:
            shutil.copytree(start.policy(name), folder / "imitated" / name)
        watch.imitation = watch.total
        watch.keep()

    def stepped(step: int, metrics: object) -> None:
        watch.keep()
        if watch.total > seconds:
            trainer.interrupt.ask()
        if step % 10 == 0:
            print(f"step {step}, {watch.total:.0f} s", flush=True)

    trainer.observer = Observer(ready=ready, stepped=stepped)
    try:
        trainer.train()
    finally:
        trainer.close()
    if trainer.stopping and watch.total <= seconds:
        raise SystemExit("The run was stopped by a signal. With --folder, the same command continues it.")
    last = checkpoint.latest(folder / "checkpoints")
    assert last is not None
    table.add("seconds of imitation", watch.imitation)
    table.add("seconds of imitation and training", watch.total)
    table.add("training steps", trainer.step_index)
    return {
        "imitation": {name: str(folder / "imitated" / name) for name in plan.trainable},
        "training": {name: str(last.policy(name)) for name in plan.trainable},
    }


def learn(table: Table, task: str, folder: Path, changes: Sequence[str], seconds: float, games: int) -> None:
    weights = trained(table, task, folder, changes, seconds)

    def show(what: str, who: Mapping[str, str], *more: str) -> None:
        table.share(f"{what}, %", *measured(task, [*changes, *more], who, games))

    show("success untrained", {})
    show("success after imitation", weights["imitation"])
    show("success after training", weights["training"])
    for change in MUTED[task]:
        show(f"trained, {change}", weights["training"], change)
    if len(weights["training"]) > 1:
        for name in weights["training"]:
            show(f"trained, {name} untrained", {n: w for n, w in weights["training"].items() if n != name})


def show_means(files: Sequence[Path]) -> None:
    """Print every line that all the files have, with its mean over them."""
    runs = [{line["what"]: line["value"] for line in json.loads(file.read_text())} for file in files]
    for what in [w for w in runs[0] if all(w in run for run in runs)]:
        values = [run[what] for run in runs]
        found = mean(values)
        each = ", ".join(f"{value:,.1f}" for value in values)
        print(f"{what:44} {found.value:9,.1f} ± {found.high - found.value:,.1f}  ({each})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "task", nargs="?", default="plan_path", choices=list(MUTED), help="the recipe in recipes/vision"
    )
    parser.add_argument("changes", nargs="*", help="changes to the recipe, such as train.steps=50")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seconds", type=float, default=480, help="time for imitation and training together")
    parser.add_argument("--games", type=int, default=1000, help="held-out tasks of each measurement")
    parser.add_argument("--ceilings", action="store_true", help="print the ceilings alone")
    parser.add_argument("--folder", help="keep the run in this folder; a run that was stopped continues")
    parser.add_argument("--json", help="also write the lines to this file")
    parser.add_argument("--mean", nargs="+", type=Path, metavar="FILE", help="only print means over such files")
    given = parser.parse_intermixed_args()
    if given.mean:
        return show_means(given.mean)
    changes = [f"device={given.device}", "records.tensorboard=off", "eval.every=0", *given.changes]
    plan, table = resolve(load(RECIPES / f"{given.task}.toml", changes), training=False), Table()
    try:
        ceilings(table, given.task, plan.recipe.env.options)
        if not given.ceilings:
            with tempfile.TemporaryDirectory() as folder:
                where = Path(given.folder or Path(folder) / "run")
                learn(table, given.task, where, changes, given.seconds, given.games)
    finally:
        if given.json:
            Path(given.json).write_text(json.dumps([asdict(line) for line in table.lines], indent=1))


if __name__ == "__main__":
    main()

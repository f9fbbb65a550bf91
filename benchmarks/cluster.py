"""Measures rollout workers on Ray, and simulates larger clusters.

    python benchmarks/cluster.py workers                   a tool that computes: 1 worker, 2 workers, 1 with two slots
    python benchmarks/cluster.py validate                  real runs with 1, 2 and 4 workers against the simulation
    python benchmarks/cluster.py sweep [--gpus 8,1000]     the simulation alone: split, staleness, tail, failures

`workers` and `validate` train a tiny model with `benchmarks/labour.py`: after every reply a tool works. In `workers` it
computes in Python, so one worker can use one core; two cores must be free. (It also prints figures for each CPU second,
which other programs change little.) In `validate` it waits instead, so that four workers do not need four cores; each
worker runs one tool at a time.

`validate` feeds the simulation with what the run with one worker measured: the tokens and tool times of every episode
(from its records), the time of an engine step (measured apart, with 1 and with 32 replies at once), and the learner's
and the update's time of a step. The same recorded episodes are simulated with 1, 2 and 4 workers and compared with real
runs. With `--json PATH` a call that was interrupted is continued by the same call. It fails if a step differs by more
than 15%.

`sweep` only simulates; none of these runs take place. Its engine and learner are those of docs/benchmarks.md (0.5B on
an H200); everything else is named above its tables.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# Ray's workers import the environment from this folder too.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])

from labour import effort, options  # noqa: E402
from simulation import Measured, Outcome, Shape, Simulation, Turns  # noqa: E402

from interplay.config import parse  # noqa: E402
from interplay.distributed.connection import package  # noqa: E402
from interplay.rollout import records  # noqa: E402
from interplay.rollout.resolve import resolve  # noqa: E402
from interplay.rollout.team import speech_of  # noqa: E402
from interplay.training.run_folder import STREAM  # noqa: E402
from interplay.training.trainer import Observer, Trainer  # noqa: E402

TASKS, GROUP, SKIP = 8, 4, 1
ALLOWED = 0.15  # by which the simulated time of a step may differ from the real one
ROWS = [
    (workers, staleness) for staleness in (0, 1) for workers in (1, 2, 4)
]  # of `validate`; the first one is measured
RECIPE: dict[str, Any] = {
    "name": "labour",
    "device": "cpu",
    "env": {"name": "labour:Labour"},
    "policies": {"labourer": {"base": "tiny-16x1"}},
    "seats": "labourer",
    "algorithm": {"name": "grpo", "group": GROUP, "correction": "tis"},
    "sampling": {"max_tokens": 2},  # the tools are measured, not the engine
    "rollout": {"tasks": TASKS},
    "train": {"lr": 1e-6},
    "stream": {"deterministic": False},
    "eval": {"every": 0, "opponents": ["team"], "success": "short"},
    "records": {"tensorboard": "off", "episodes_per_step": TASKS * GROUP},
    "checkpoint": {"every": 100_000},
}


# -- real runs --------------------------------------------------------------------------------------------------------


def train(folder: Path, workers: int, overrides: Sequence[str]) -> list[dict[str, float]]:
    """The metrics of every counted step of a run with rollout workers, and its seconds."""
    from interplay.distributed.cluster import RolloutFleet

    rows: list[dict[str, float]] = []
    last = time.perf_counter()

    def stepped(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal last
        now = time.perf_counter()
        rows.append({**metrics, "wall": now - last})
        last = now

    plan = resolve(parse(RECIPE, [*overrides, f"cluster.rollout_workers={workers}"]))
    trainer = Trainer(plan, folder, Observer(stepped=stepped))
    trainer.make_fleet = RolloutFleet
    try:
        trainer.train()
    finally:
        trainer.close()
    if trainer.stopping:
        raise SystemExit("A signal ended the run, and so the benchmark.")
    return rows[SKIP:]


@contextmanager
def local_cluster(workers: int) -> Iterator[None]:
    """Inside, there is one local cluster for all runs of this program. SIGTERM ends it too: a run hears the signal and
    ends (`train`), and between runs Ray's own handler raises SystemExit."""
    ray = package()
    ray.init(address="local", num_cpus=workers + 1, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def machine() -> str:
    """The cores, and how many programs wanted one in the last minute, because figures of a busy machine mean little."""
    return f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}"


def mean_of(rows: Sequence[Mapping[str, float]], key: str) -> float:
    return fmean(row[key] for row in rows)


@local_cluster(2)
def workers(args: argparse.Namespace) -> dict[str, Any]:
    """Episodes per second on a task whose tool computes, and for each CPU second of the tools alone. The time of an
    engine on the clock cannot be subtracted: it shares its worker's core with the tool, and mostly waits for it."""
    arms = {"1 worker": (1, 1), "2 workers": (2, 1), "1 worker, twice the concurrency": (1, 2)}
    found: dict[str, Any] = {}
    for name, (count, slots) in arms.items():
        given = options({"how": "compute", "mean": args.mean, "slots": slots})
        with tempfile.TemporaryDirectory() as folder:
            rows = train(Path(folder), count, [*given, f"train.steps={args.steps + SKIP}"])
            tools, whole = busiest(Path(folder))
        seconds = mean_of(rows, "seconds/rollout")
        found[name] = {
            "episodes_per_second": TASKS * GROUP / seconds,
            "per_tool_cpu_second": TASKS * GROUP / tools,
            "per_cpu_second": TASKS * GROUP / whole,
        }
        print(f"{name}: {found[name]}", flush=True)
    first = found["1 worker"]
    print(f"{machine()}; one run an arm, means over {args.steps} steps of {TASKS * GROUP} episodes")
    print("Episodes per second; in brackets, compared with 1 worker. The last two columns divide by the CPU seconds of")
    print("the worker that used most. Other programs on the machine change these little, and waiting does not count.\n")
    columns = {
        "episodes_per_second": "episodes/s",
        "per_tool_cpu_second": "for each CPU second of tools",
        "per_cpu_second": "for each CPU second, engine included",
    }
    print(f"| | {' | '.join(columns.values())} |\n|---{'|---' * len(columns)}|")
    for name, row in found.items():
        print(f"| {name} | {' | '.join(f'{row[key]:.2f} ({row[key] / first[key]:.2f})' for key in columns)} |")
    return found


def busiest(folder: Path) -> tuple[float, float]:
    """The CPU seconds of tools in a step, and all CPU seconds in it, of the worker that used most of them; means over
    the counted steps."""
    tools: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))  # by step and process
    used: dict[int, dict[int, float]] = defaultdict(dict)  # what each process had used by the end of a step
    for record in records.read(folder / "episodes.jsonl"):
        found = effort(record.episode.final_state)
        tools[record.step][found.process] += sum(found.computed)
        used[record.step][found.process] = max(found.used, used[record.step].get(found.process, 0.0))
    steps = sorted(used)[SKIP:]
    whole = [max(used[step][p] - used[step - 1][p] for p in used[step]) for step in steps]
    return fmean(max(tools[step].values()) for step in steps), fmean(whole)


# -- what is measured for the simulation ------------------------------------------------------------------------------


def recorded(folder: Path) -> dict[tuple[int, int], Turns]:
    """The episodes of a run from its records."""
    rows = [json.loads(line) for line in (folder / STREAM).read_text().splitlines()]
    numbers = {row["task"]: row["group"] for row in rows}
    out: dict[tuple[int, int], Turns] = {}
    for record in records.read(folder / "episodes.jsonl"):
        episode = record.episode
        tokens = [turn.sampled for turn in episode.line()]
        spent = effort(episode.final_state).spent
        out[numbers[episode.task.id], episode.replica] = tuple(zip(tokens, spent, strict=True))
    return out


def engine_times(rounds: int = 5) -> tuple[float, float]:
    """Seconds of an engine step, and of each running reply more, from rounds of 1 and of 32 episodes with one turn and
    no tool to speak of. They include what rollout itself costs."""
    times: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        given = [*options({"how": "wait", "mean": 1e-6, "turns": 1, "slots": 100}), "algorithm.group=2"]
        trainer = Trainer(resolve(parse(RECIPE, given)), Path(folder))
        seating = trainer.team.seating(lambda _: trainer.plan.seats, speech_of(trainer.plan.recipe))
        for count in (2, 32):
            taken = []
            for round_ in range(rounds):
                tasks = [trainer.plan.task(100 * round_ + i) for i in range(count // 2)]
                began = time.perf_counter()
                episodes = asyncio.run(trainer.runner.run(tasks, seating))
                longest = max(t.sampled for e in episodes for t in e.turns)
                taken.append((time.perf_counter() - began) / longest)
            times[count] = min(taken)
        trainer.close()
    each = max(0.0, (times[32] - times[2]) / 30)
    return times[2] - 2 * each, each


# -- comparing --------------------------------------------------------------------------------------------------------


def shape_of(measured: Measured, count: int, staleness: int) -> Shape:
    return Shape(
        count, 1, measured.step, measured.each, TASKS, GROUP, staleness, lambda _: measured.learn, measured.update
    )


@local_cluster(4)
def validate(args: argparse.Namespace) -> dict[str, Any]:
    """With `--json`, every row is written when it is known, and a later call goes on after the rows that are there."""
    found = begun(args)
    measured = Measured.read(found["measured"]) if found["measured"] else None
    known = {(row["workers"], row["staleness"]) for row in found["runs"]}
    step, each = (0.0, 0.0) if measured is not None else engine_times()
    for count, staleness in (place for place in ROWS if place not in known):
        given = [*options({"how": "wait", "mean": args.mean}), f"train.steps={args.steps + SKIP}"]
        with tempfile.TemporaryDirectory() as folder:
            rows = train(Path(folder), count, [*given, f"stream.max_staleness={staleness}"])
            if measured is None:
                update = mean_of(rows, "cluster/update_seconds")
                learn = mean_of(rows, "wall") - mean_of(rows, "seconds/rollout") - update
                measured = Measured(recorded(Path(folder)), step, each, learn, update)
        simulated = Simulation(shape_of(measured, count, staleness), measured.draw).run(args.steps + SKIP, SKIP)
        real, load = mean_of(rows, "wall"), os.getloadavg()[0]
        row = {"workers": count, "staleness": staleness, "real": real, "simulated": simulated.seconds, "load": load}
        found["runs"].append(row)
        found["measured"] = measured.written()
        print(row, flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps(found, indent=1), encoding="utf-8")
    assert measured is not None
    show_validation(measured, found["runs"], args.steps)
    return found


def begun(args: argparse.Namespace) -> dict[str, Any]:
    """The rows that an earlier call has written, and what it measured."""
    path = Path(args.json) if args.json else None
    if path is None or not path.is_file():
        return {"mean": args.mean, "steps": args.steps, "runs": [], "measured": None}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if (found.get("mean"), found.get("steps")) != (args.mean, args.steps):
        raise SystemExit(f"{path} has results with another --mean or --steps; give these, or another file.")
    return found


def show_validation(measured: Measured, found: Sequence[Mapping[str, float]], steps: int) -> None:
    print(
        f"measured: an engine step {1e3 * measured.step:.2f} ms, and {1e3 * measured.each:.3f} ms for each reply; "
        f"learner {measured.learn:.3f} s, update {measured.update:.3f} s; {len(measured.episodes)} episodes"
    )
    print(f"{os.cpu_count()} cores; one run a row, means over {steps} steps; the load average is that after the row")
    print("\n| workers | max_staleness | real, s a step | simulated | difference | load |\n|---|---|---|---|---|---|")
    gaps = [row["simulated"] / row["real"] - 1 for row in found]
    for row, gap in zip(found, gaps, strict=True):
        cells = f"{row['workers']:g} | {row['staleness']:g} | {row['real']:.3f} | {row['simulated']:.3f}"
        print(f"| {cells} | {gap:+.1%} | {row['load']:.1f} |")
    worst = max(gaps, key=abs)
    print(f"\nThe largest difference is {worst:+.1%}; at most {ALLOWED:.0%} is allowed.", flush=True)
    if abs(worst) > ALLOWED:
        raise SystemExit(1)


# -- the simulation alone ---------------------------------------------------------------------------------------------

# docs/benchmarks.md, 0.5B on one H200: 1.91 ms a step with 256 replies, 4.72 ms with 1,024; 113,605 tokens/s learned.
EACH = (4.72e-3 - 1.91e-3) / (1024 - 256)
STEP = 1.91e-3 - 256 * EACH
LEARNED = 113_605
HOUR = 3600.0
HEADER = (
    "| GPUs | learners | max_staleness | tail | hours between failures of a GPU | s a step | tokens/s | learner idle | "
    "engines idle | age | lost workers, learner groups |\n" + "|---" * 11 + "|"
)


@dataclass(frozen=True)
class Setting:
    """One line of a table. `tail` is the standard deviation of the logarithm of the length of a reply."""

    gpus: int = 1000
    learners: float = 0.25  # share of the GPUs
    staleness: int = 1
    tail: float = 0.8
    mtbf: float = math.inf  # hours of one GPU

    def outcome(self, args: argparse.Namespace) -> Outcome:
        trained = max(1, round(self.gpus * self.learners))
        group = 8
        shape = Shape(
            workers=self.gpus - trained, slots=64, step=STEP, each=EACH,
            batch=max(1, self.gpus * args.episodes // group), replicas=group, staleness=self.staleness,
            learn=lambda tokens: args.overhead + tokens * args.prompts / (LEARNED * trained), update=args.update,
            learners=trained, mtbf=self.mtbf * HOUR, restart=args.restart,
        )  # fmt: skip
        return Simulation(shape, self._draw(args)).run(args.steps + self.staleness + 1, self.staleness + 1)

    def _draw(self, args: argparse.Namespace) -> Callable[[int, int], Turns]:
        def draw(number: int, replica: int) -> Turns:
            dice = Random(f"{number} {replica}")
            turns = dice.randint(1, 2 * args.turns - 1)
            mu = math.log(args.tokens) - self.tail**2 / 2
            replies = [max(1, round(dice.lognormvariate(mu, self.tail))) for _ in range(turns)]
            return tuple((n, dice.lognormvariate(math.log(args.tool) - 0.125, 0.5)) for n in replies)

        return draw


def sweep(args: argparse.Namespace) -> dict[str, Any]:
    print("A SIMULATION: nothing of this was run. Validation: python benchmarks/cluster.py validate")
    print(
        f"0.5B on H200s: an engine step {1e3 * STEP:.2f} ms and {1e6 * EACH:.2f} µs for each reply; a learner GPU "
        f"{LEARNED:,} tokens/s, and {args.overhead:g} s for a step; an update {args.update:g} s; {args.episodes} "
        f"episodes a GPU and step, {args.turns} turns in the mean with {args.tokens} tokens and a tool of "
        f"{args.tool:g} s; {args.prompts:g} trained tokens for each sampled one; a lost GPU is back after "
        f"{args.restart:g} s"
    )
    print("A row in which hardly any failure happened says nothing about failures; --steps makes the rows longer.")
    most = max(args.gpus)
    base = Setting(most)
    tables: dict[str, list[Setting]] = {
        "GPUs": [replace(base, gpus=count) for count in args.gpus],
        "learners, share of the GPUs": [replace(base, learners=share) for share in (0.1, 0.2, 0.25, 0.3, 0.4)],
        "max_staleness": [replace(base, staleness=s) for s in (0, 1, 2, 4)],
        "tail": [replace(base, tail=t, staleness=s) for t in (0.4, 0.8, 1.2) for s in (0, 1)],
        "hours between failures of a GPU": [replace(base, mtbf=h) for h in (math.inf, 500, 50, 5)],
    }
    known: dict[Setting, Outcome] = {}
    out: dict[str, Any] = {}
    for name, settings in tables.items():
        print(f"\n**{name}**\n\n{HEADER}")
        for setting in settings:
            if setting not in known:
                known[setting] = setting.outcome(args)
            found = known[setting]
            print(
                f"| {setting.gpus:,} | {setting.learners:.0%} | {setting.staleness} | {setting.tail:g} | "
                f"{setting.mtbf:,g} | {found.seconds:.1f} | {found.tokens_per_second:,.0f} | "
                f"{found.learner_idle:.0%} | {found.engine_idle:.0%} | {found.age:.2f} | "
                f"{found.lost_workers}, {found.lost_learners} |",
                flush=True,
            )
        out[name] = [{**asdict(setting), **asdict(known[setting])} for setting in settings]
    return out


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["workers", "validate", "sweep"], help="what to do, as described above")
    parser.add_argument("--steps", type=int, default=6, help="training steps that are counted")
    parser.add_argument("--mean", type=float, default=0.1, help="workers, validate: mean seconds of the tool")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file; validate goes on from it")
    about = parser.add_argument_group("sweep")
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    about.add_argument(
        "--gpus", type=numbers, default=[8, 64, 256, 1000], help="numbers of GPUs, with commas between them"
    )
    about.add_argument("--episodes", type=int, default=16, help="episodes of a training step, for each GPU")
    about.add_argument("--turns", type=int, default=3, help="mean number of turns in an episode")
    about.add_argument("--tokens", type=int, default=1024, help="mean number of tokens in a reply")
    about.add_argument("--tool", type=float, default=2.0, help="mean seconds of a tool")
    about.add_argument("--prompts", type=float, default=1.5, help="trained tokens for each sampled token")
    about.add_argument(
        "--overhead", type=float, default=1.0, help="seconds of a training step that more GPUs do not shorten"
    )
    about.add_argument("--update", type=float, default=2.0, help="seconds that an update of the weights takes")
    about.add_argument("--restart", type=float, default=300.0, help="seconds until a lost GPU is back")
    args = parser.parse_args(given)
    table = {"workers": workers, "validate": validate, "sweep": sweep}[args.what](args)
    if args.json:
        Path(args.json).write_text(json.dumps(table, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

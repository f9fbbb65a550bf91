"""Makes the results with real models: does training a team beat training one agent, for the same number of tokens?

    python benchmarks/results.py --plan                                    what would be run, and how long it takes
    python benchmarks/results.py --model FOLDER --jobs 2 --seconds 900     run what is left, the most important first
    python benchmarks/results.py --model FOLDER --cells code gsm8k/single  only these studies or arms
    python benchmarks/results.py --unpack benchmarks/results.tar.gz --markdown docs/results.md    write the page
    python benchmarks/results.py --unpack FILE --metrics turns_cut memory_gib    how these changed in every finished run
    python benchmarks/results.py --tiny --out FOLDER                       check all of it with tiny models on a CPU

A cell is one arm of a study in recipes/results/experiment, trained with one seed to its budget of tokens. The budget
counts every token that trained policies sample: rejected candidates and playouts too. Each cell is tested on held-out
tasks before and after training, in a run folder of its own (OUT/STUDY/ARM/seed-N). Cells that are finished are not run
again. A cell that the time limit stopped goes on from its checkpoint, as long as its folder exists. --pack writes the
finished cells and what they measured, without weights, to a file, whenever a cell is finished; --unpack reads it on
another machine. The rows are made by `interplay prepare gsm8k --drop-overlap` and `interplay prepare mbpp
--drop-overlap`. Later calls must have the same --model, --data and --changes, because they are part of a study.
"""

from __future__ import annotations

import argparse
import json
import os
import tarfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interplay.publishing.study import Study

STUDIES = Path(__file__).parents[1] / "recipes" / "results" / "experiment"
KEPT = ("test.json", "start.json", "metrics.jsonl", "run.json", "recipe.toml")
FINISHED = "*/*/seed-*/test.json"  # a finished cell has this file
STEPS = (1, 10, 20, 40, 60)  # those that --metrics prints
GAME = ("self-play", "fixed", "league")
PUZZLE = ("single", "shared", "separate")
GROUPS = (  # the most important first; all seeds of a group before the next group
    ("gsm8k/single", "gsm8k/pair", "gsm8k/pair-grpo", "gsm8k/pair-l2"),
    tuple(f"gsm8k_adapters/{arm}" for arm in PUZZLE),
    tuple(f"plan_path/{arm}" for arm in PUZZLE),
    ("gsm8k/debate", "gsm8k/relay", "gsm8k/pair-l3"),
    tuple(f"sudoku/{arm}" for arm in PUZZLE),
    tuple(f"sokoban/{arm}" for arm in PUZZLE),
    ("code/single", "code/pair", "code/pair-l2"),
    tuple(f"tictactoe/{arm}" for arm in GAME),
    tuple(f"kuhn/{arm}" for arm in GAME),
)
ROWS = {
    "gsm8k": "gsm8k",
    "gsm8k_adapters": "gsm8k",
    "code": "mbpp",
}  # studies over prepared rows, and the folder that interplay prepare makes
# Tokens per second of whole training steps, until a finished run says better. From one run each on one H200: 90 steps
# of 512 replies by one agent took 178 s, and 60 steps of a pair 154 s; the length of a reply (180 tokens) is a guess.
ASSUMED = {"single": 46_000.0, "team": 25_000.0}
LOADING = 20.0  # seconds to load a 0.5B model, to compile and to write two checkpoints: a guess
TESTING = 40_000.0  # tokens per second in tests: a guess
TINY = [
    "policies.agent.base=tiny-32x1", "device=cpu", "train.steps=2", "train.budget_tokens=0", "rollout.tasks=2",
    "sampling.max_tokens=4", "eval.games=4", "records.episodes_per_step=0",
]  # fmt: skip

INTRODUCTION = """# Results with real models

Does training a team beat training one agent, for the same number of sampled tokens? `benchmarks/results.py` runs the
studies in `recipes/results/experiment` and writes this page from their run folders;
`python benchmarks/results.py --plan` prints what is left to run.

- Every arm of a study has the same budget. It counts all tokens that trained policies sample, with rejected candidates
  and playouts.
- *Before* and *after* are shares of the same held-out test tasks, with the same prompts, at temperature 1 and without
  legal masks, in percent. Intervals are 95% over seeds (Student's t); "one run" has no interval.
- *Seconds* are the training of a run, without its tests. Several runs shared the GPU (`--jobs`), so they are no measure
  of speed. *Tokens an episode* are those of the tests after training.
- Learning rates were not tuned for each arm.
- A first version of Plan-Path, Sudoku and Sokoban had no KL penalty, standardised advantages and 32 tasks a step. Two
  runs of Plan-Path with it, on one H200, did not learn: soon all replies of one agent to a board were the same letter,
  so that they earned the same. Their folders were not kept. These studies now have a KL penalty and plain advantages.
  Plan-Path has been run again, with 64 tasks a step; Sudoku and Sokoban have not been run.
- The run folders, without weights and episodes, are in `benchmarks/results.tar.gz`. This command makes the page from
  them: `python benchmarks/results.py --unpack benchmarks/results.tar.gz --markdown docs/results.md`

"""


@dataclass(frozen=True)
class Cell:
    study: Study
    arm: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.study.section.name}/{self.arm}"

    @property
    def tested(self) -> dict[str, Any] | None:
        path = self.folder / "test.json"
        return json.loads(path.read_text()) if path.is_file() else None


def studies_of(args: argparse.Namespace) -> list[tuple[Path, list[str]]]:
    """The files of the studies that are asked for, in the order of `GROUPS`, and the changes to their recipes."""
    names = list(dict.fromkeys(cell.partition("/")[0] for group in wanted(args.cells) for cell in group))
    changes = [f"policies.agent.base={args.model}"] if args.model else []
    changes += [f"train.budget_tokens={args.tokens}"] if args.tokens else []
    out = []
    for name in names:
        more = [*args.changes, *(TINY if args.tiny else [])]
        if name in ROWS:
            more.append(f"env.data={'' if args.tiny else args.data / ROWS[name]}")
        out.append((STUDIES / f"{name}.toml", [*changes, *more]))
    return out


def wanted(cells: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """`GROUPS` with only the named studies and arms; all if none is named."""
    known = [cell for group in GROUPS for cell in group]
    for name in cells:
        if not any(name in (cell, cell.partition("/")[0]) for cell in known):
            raise SystemExit(f"--cells has '{name}'; expected a study or an arm of {', '.join(known)}.")
    kept = [tuple(c for c in group if not cells or {c, c.partition("/")[0]} & {*cells}) for group in GROUPS]
    return tuple(group for group in kept if group)


def cells_of(args: argparse.Namespace) -> list[Cell]:
    from interplay.publishing.experiment import run_folder
    from interplay.publishing.study import Study

    read = {}
    for path, changes in studies_of(args):
        study = Study.read(path, changes, args.seeds)
        read[study.section.name] = study
    out = []
    for group in wanted(args.cells):
        for place in range(max(len(read[cell.partition("/")[0]].section.seeds) for cell in group)):
            for name, _, arm in (cell.partition("/") for cell in group):
                for seed in read[name].section.seeds[place : place + 1]:
                    out.append(Cell(read[name], arm, seed, run_folder(args.out / name, arm, seed)))
    return out


# -- the plan -----------------------------------------------------------------------------------------------------


def rate(cell: Cell, cells: Sequence[Cell]) -> tuple[float, str]:
    """Tokens per second of a cell's training steps: measured by finished cells of the same arm, else assumed."""
    found = [c.tested["counts"] for c in cells if c.name == cell.name and c.tested is not None]
    if seconds := sum(one["seconds"] for one in found):
        return sum(one["learner_tokens"] for one in found) / seconds, "measured"
    return ASSUMED["single" if cell.arm == "single" else "team"], "assumed"


def seconds_of(cell: Cell, cells: Sequence[Cell]) -> tuple[float, str]:
    recipe = cell.study.recipe(cell.arm, cell.seed)
    speed, how = rate(cell, cells)
    roles = 1 if cell.arm == "single" else 2
    plays = 2 + (roles if cell.arm in cell.study.section.resets else 0)
    tests = plays * recipe.eval.games * roles * recipe.sampling.max_tokens / 2 / TESTING
    return LOADING + recipe.train.budget_tokens / speed + tests, how


def plan(args: argparse.Namespace) -> None:
    cells, total = cells_of(args), 0.0
    print("seconds if the cells are run one after another:")
    for cell in cells:
        if cell.tested is not None:
            print(f"{cell.name:<20} seed {cell.seed}  done")
            continue
        seconds, how = seconds_of(cell, cells)
        total += seconds
        budget = cell.study.recipe(cell.arm, cell.seed).train.budget_tokens
        print(
            f"{cell.name:<20} seed {cell.seed}  {budget:>11,} tokens {seconds:>6.0f} s ({how}) {total:>7.0f} s so far"
        )
    left = [c for c in cells if c.tested is None]
    print(f"{len(left)} of {len(cells)} cells left, about {total:.0f} s; the speeds marked 'assumed' were not measured")


# -- running ------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> None:
    from interplay.publishing.agenda import ExperimentPace, StudyCall, run_calls

    began, kept = time.monotonic(), 0

    def tell(line: str) -> None:
        nonlocal kept
        print(f"{time.monotonic() - began:.0f} s: {line}", flush=True)
        finished = len(list(args.out.glob(FINISHED)))
        if args.pack is not None and finished > kept:  # now, because the machine may be gone at the end
            pack(args.out, args.pack)
            kept = finished

    calls = [StudyCall(path, tuple(changes), args.seeds, args.out / path.stem) for path, changes in studies_of(args)]
    run_calls(calls, ExperimentPace(args.jobs, args.seconds, wanted(args.cells), go_on=True), tell)
    left = [c for c in cells_of(args) if c.tested is None]
    print(f"{len(left)} cells left")
    if args.pack is not None:
        pack(args.out, args.pack)
        print(f"{args.pack}: {args.pack.stat().st_size / 2**20:.1f} MiB")


def metrics(args: argparse.Namespace) -> None:
    """Print each metric of each finished run: its means over the first and the last five steps, and single steps."""
    print("| run | metric | first five | last five | " + " | ".join(f"step {n}" for n in STEPS) + " | last |")
    print("|---|---|" + "---:|" * (3 + len(STEPS)))
    for test in sorted(args.out.glob(FINISHED)):
        rows = [json.loads(line) for line in (test.parent / "metrics.jsonl").read_text().splitlines()]
        for name in args.metrics:
            known = {int(row["step"]): row[name] for row in rows if name in row}
            values = list(known.values())
            if values:
                shown = [fmean(values[:5]), fmean(values[-5:]), *map(known.get, STEPS), values[-1]]
                cells = ["" if value is None else f"{value:.3g}" for value in shown]
                print(f"| {test.parent.relative_to(args.out)} | {name} | " + " | ".join(cells) + " |")


def pack(out: Path, file: Path) -> None:
    """Replace `file` by one with all finished cells. Whatever ends the program meanwhile, a whole file is there."""
    made = file.with_name(f"{file.name}.partial")
    with tarfile.open(made, "w:gz") as tar:
        for path in packed(out):
            tar.add(path, str(path.relative_to(out)))
    made.replace(file)


def packed(out: Path) -> Iterator[Path]:
    """What the page and the next call need of the studies and their finished cells."""
    yield from sorted(out.glob("*/study.json"))
    for test in sorted(out.glob(FINISHED)):
        yield from (test.parent / name for name in KEPT if (test.parent / name).is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="print what is left and stop")
    parser.add_argument("--metrics", nargs="+", help="print these metrics of the finished runs and stop")
    parser.add_argument("--markdown", type=Path, help="write the page from the run folders and stop")
    parser.add_argument("--out", type=Path, default=Path("runs/results"), help="folder of the run folders")
    parser.add_argument("--model", help="the folder of the weights; default: the name in the recipes")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the folder of prepared rows: gsm8k and mbpp")
    parser.add_argument("--cells", nargs="*", default=[], help="studies or STUDY/ARM; default: all")
    parser.add_argument("--seeds", type=int, help="use only this many seeds of each study")
    parser.add_argument("--tokens", type=int, help="the budget of every cell, in place of the recipe's")
    parser.add_argument("--jobs", type=int, default=1, help="how many cells run side by side")
    parser.add_argument("--seconds", type=float, help="begin nothing after this time and stop at the next step")
    parser.add_argument("--changes", nargs="*", default=[], help="changes to the recipe of every cell: a.b=c")
    parser.add_argument("--tiny", action="store_true", help="tiny models on a CPU and two steps, to check everything")
    parser.add_argument("--pack", type=Path, help="write what was measured to this file, without weights")
    parser.add_argument("--unpack", type=Path, help="read what an earlier call has packed")
    args = parser.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    if args.unpack is not None and args.unpack.is_file():
        with tarfile.open(args.unpack) as tar:
            tar.extractall(args.out, filter="data")
    if args.plan:
        plan(args)
    elif args.metrics:
        metrics(args)
    elif args.markdown is not None:
        from interplay.publishing.team_page import team_page

        names = dict.fromkeys(c.partition("/")[0] for g in GROUPS for c in g)
        found = [args.out / name for name in names if (args.out / name / "study.json").is_file()]
        notes = {name: tomllib.loads((STUDIES / f"{name}.toml").read_text()).get("notes", []) for name in names}
        args.markdown.write_text(INTRODUCTION + team_page(found, notes))
    else:
        run(args)


if __name__ == "__main__":
    main()

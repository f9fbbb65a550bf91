"""Who solves what: every algorithm on every game of the proving ground.

    python benchmarks/algorithms.py --seeds 3 --workers 2 --markdown docs/algorithms.md

The policies are tables and not language models (`interplay.evaluation.proving`), so a cell takes seconds. A game that
an algorithm does not solve is printed at once, with the reason. Ctrl-C prints the seeds that are complete. With
`--cells FILE` every finished cell is written there, and a run that was stopped goes on if the code is the same.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import math
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

import scipy
import torch

from interplay import algorithms
from interplay.evaluation.games import GAMES, Game, moves
from interplay.evaluation.proving import CONTENDERS, prove

BY_NAME = {game.name: game for game in GAMES}
BY_LABEL = {contender.label: contender for contender in CONTENDERS}
TEAM_MEAN = (
    "it maximises the team's mean reward, which mutual cooperation does (3 each instead of 1), so it solves another "
    "problem"
)
NO_MEAN = (
    "the team's mean reward is 0 for all actions, so there is nothing to learn and the policies stay at their start"
)
DEFAULT = (
    "an action is also judged together with the other role's default action, so the policy also learns to answer that "
    "one"
)
SMALL = (
    "an advantage is at most β (0.1), so with the plain gradient steps of the zero-sum games the policies have hardly "
    "left their start"
)
ORBIT = (
    "plain gradient steps circle around the equilibrium, and the average strategies have not converged in the given "
    "steps"
)
KNOWS = (
    "the mixer sees the answer, but p1 does not. If p1's word is right, its utility gets a large weight, and if it is "
    "wrong, a weight of 0. So no word is charged for its losses, and p1 learns to say one word whatever it hears"
)
SUM = "a sum of utilities cannot represent that the moves of the second table pay only together"
CORNER = (
    "the best joint action is next to the worst (−30). If both play all actions with equal probability, the best "
    "reply of each agent is in the safe corner, and the gradient leads there, to 7, 6 or 5"
)
SAFE = (
    "with a teammate who plays all actions with equal probability, the action of the best cell loses 5⅓ and the "
    "others lose 4. The expected gradient leads to the safe 0, and no baseline changes this"
)
LEFT = (
    "with a teammate who still plays all actions with equal probability, the second table is worth 2.5 and the first "
    "7. So the policy moves away from the second table, and it does not come back in the given steps"
)
ZERO_SUM = ("matching_pennies", "rock_paper_scissors")
WHY: dict[tuple[str, str], str] = {
    ("", "climbing"): CORNER,
    ("", "non_monotonic"): SAFE,
    ("", "two_step"): LEFT,
    ("vdn", "two_step"): SUM,
    ("qmix", "debate"): KNOWS,
    **{("", game): ORBIT for game in ZERO_SUM},
    **{(name, "prisoners_dilemma"): TEAM_MEAN for name in ("vdn", "qmix")},
    **{(name, game): NO_MEAN for name in ("vdn", "qmix") for game in ZERO_SUM},
    **{("shapley", game): DEFAULT for game in ZERO_SUM},
    **{("online_dpo", game): SMALL for game in ZERO_SUM},
}


@dataclass(frozen=True)
class Cell:
    label: str
    game: str
    seed: int
    frozen: tuple[str, ...]
    result: float
    spread: float  # standard error over the episodes measured
    common: str  # the moves played most
    believed: str
    seconds: float


def cell(job: tuple[str, str, int, tuple[str, ...], bool]) -> Cell:
    label, name, seed, frozen, asked = job
    torch.set_num_threads(1)
    began, game = time.monotonic(), BY_NAME[name]
    ground = prove(BY_LABEL[label], game, seed, frozen)
    played = ground.play()
    found = [game.measure(e) for e in played]
    mean = fmean(found)
    spread = math.sqrt(fmean((x - mean) ** 2 for x in found) / len(found))
    common = Counter(" ".join(moves(e)) for e in played).most_common(1)[0][0]
    result = ground.result() if game.zero_sum else mean
    believed = " ".join(ground.believed()) if asked else ""
    return Cell(label, name, seed, frozen, result, spread, common, believed, time.monotonic() - began)


Job = tuple[str, str, int, tuple[str, ...], bool]


def code() -> str:
    """A digest of what the numbers depend on."""
    root = Path(algorithms.__file__).parents[1]
    files = sorted((root / "algorithms").glob("*.py"))
    files += [root / "rollout" / f"{name}.py" for name in ("runner", "tree", "joint")]
    files += [root / "evaluation" / f"{name}.py" for name in ("games", "proving")]
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=8).hexdigest()


def known(file: Path | None) -> dict[Job, Cell]:
    """The cells that an earlier run of the same code has written."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file and file.exists() else []
    cells = [Cell(**{**row["cell"], "frozen": tuple(row["cell"]["frozen"])}) for row in rows if row["code"] == code()]
    return {(c.label, c.game, c.seed, c.frozen, bool(c.believed)): c for c in cells}


def jobs(seeds: int, labels: list[str], games: list[str]) -> list[Job]:
    """The jobs, seed by seed. Those with a frozen role are done with the first seed."""
    out: list[Job] = []
    if "two_keys" in games:
        out += [(label, "two_keys", 0, (role,), False) for label in labels for role in ("p0", "p1")]
    fitted = [label for label in labels if BY_LABEL[label].name in ("vdn", "qmix", "maddpg") and "Gumbel" not in label]
    payoffs = [game for game in ("monotonic", "non_monotonic", "climbing") if game in games]
    out += [(label, game, 0, ("p0", "p1"), True) for label in fitted for game in payoffs]
    return out + [(label, game, seed, (), False) for seed in range(seeds) for label in labels for game in games]


def shown(game: Game, value: float) -> str:
    return f"{-value if game.zero_sum else value:.2f}"


def over_seeds(found: list[float]) -> str:
    """Half the 95% interval of a mean over seeds, by Student's t."""
    if len(found) < 2:
        return " (one run)"
    return f" ± {scipy.stats.t.ppf(0.975, len(found) - 1) * stdev(found) / math.sqrt(len(found)):.2f}"


def results(cells: list[Cell], labels: list[str], games: list[str]) -> list[str]:
    lines = ["| algorithm | " + " | ".join(g.replace("_", " ") for g in games) + " |", "|---" * (len(games) + 1) + "|"]
    for label in labels:
        row = [label]
        for name in games:
            game = BY_NAME[name]
            mine = [c for c in cells if (c.label, c.game, c.frozen) == (label, name, ())]
            solved = sum(c.result >= game.goal for c in mine)
            mark = "✓" if solved == len(mine) else "–" if not solved else f"{solved}/{len(mine)}"
            extra = f" {mine[0].common.split()[0]}" if name == "stag_hunt" else ""
            found = [c.result for c in mine]
            row.append(f"{mark} {shown(game, fmean(found))}{over_seeds(found)}{extra}")
        lines.append("| " + " | ".join(row) + " |")
    return lines


def reasons(cells: list[Cell]) -> list[str]:
    missed: dict[str, list[str]] = {}
    for c in cells:
        game = BY_NAME[c.game]
        if not c.frozen and c.result < game.goal:
            name = BY_LABEL[c.label].name
            why = WHY.get((name, c.game)) or WHY.get(("", c.game)) or f"not reached in {game.steps} steps"
            missed.setdefault(f"**{c.game.replace('_', ' ')}**: {why}", []).append(c.label)
    return [f"- {why} ({', '.join(dict.fromkeys(labels))})." for why, labels in sorted(missed.items())]


def roles(cells: list[Cell], labels: list[str]) -> list[str]:
    lines = ["| algorithm | both learn | p0 frozen | p1 frozen | gain of p0 | gain of p1 |", "|---" * 6 + "|"]
    for label in labels:
        found = {c.frozen: c for c in cells if c.label == label and c.game == "two_keys" and c.seed == 0}
        if {(), ("p0",), ("p1",)} <= found.keys():
            both, gains = found[()], []
            for role in ("p0", "p1"):
                alone = found[(role,)]
                error = math.hypot(both.spread, alone.spread)
                gains.append(f"{both.result - alone.result:.2f} ± {1.96 * error:.2f}")
            three = [found[key].result for key in ((), ("p0",), ("p1",))]
            lines.append("| " + " | ".join([label, *(f"{x:.2f}" for x in three), *gains]) + " |")
    return lines


def beliefs(cells: list[Cell]) -> list[str]:
    asked = [c for c in cells if c.believed]
    games = list(dict.fromkeys(c.game for c in asked))
    lines = [
        "| fitted to even play | " + " | ".join(g.replace("_", " ") for g in games) + " |",
        "|---" * (len(games) + 1) + "|",
    ]
    for label in dict.fromkeys(c.label for c in asked):
        row = {c.game: c.believed for c in asked if c.label == label}
        lines.append(f"| {label} | " + " | ".join(row[g] for g in games) + " |")
    return lines


def family() -> list[str]:
    lines = []
    for name in algorithms.known():
        module = inspect.getmodule(algorithms.lookup(name))
        lines.append(f"- `{name}`: {(inspect.getdoc(module) or '').splitlines()[0]}")
    return lines


def page(cells: list[Cell], labels: list[str], games: list[str], command: str) -> str:
    parts = [
        "# Algorithms, and who solves what",
        f"Printed by `{command}`. The policies are softmax tables. Everything else is the code that trains language "
        "models: the environments, the runner and its trees, and each algorithm's own credit and loss, with its "
        "published settings. "
        "Every algorithm sees about 16 replies of each role per step. ✓ means solved, – missed, and a fraction is the "
        "share of seeds that solved it; the number is the mean over seeds with its 95% interval (Student's t)."
        f" Seeds: {1 + max(c.seed for c in cells)}.",
        "\n".join(family()),
        "## The games",
        "\n".join(["| game | known answer | measured | solved at | steps |", "|---|---|---|---|---|"]
                  + [f"| {g.name.replace('_', ' ')} | {g.answer} | "
                     f"{'exploitability of the average strategies' if g.zero_sum else 'mean over 300 new episodes'} | "
                     f"{'at most' if g.zero_sum else 'at least'} {shown(g, g.goal)} | {g.steps} |"
                     for g in GAMES if g.name in games]),
        "## Results",
        "\n".join(results(cells, labels, games)),
        "A reply is one token here, and a batch is used for one gradient step, so all ratios are 1. Variants that "
        "differ in clipping, in the ratio or in the length (GSPO, CISPO, Dr.GRPO's constant, PPO by token) therefore "
        "behave like the algorithm they come from. `tests/algorithms` tests their formulas with numbers computed by "
        "hand.",
        "In the stag hunt the word says which of the two equilibria was reached: hare is safe, stag is better.",
        "## Why some games are not solved",
        "\n".join(reasons(cells)),
    ]  # fmt: skip
    if "two_keys" in games:
        parts += [
            "## Both roles are needed",
            "Two keys is solved only if both roles improve. If either role is frozen at its start, the other reaches "
            "at most a third. The gain of a role is what its learning adds, in one run (seed 0), with a 95% interval "
            "over its episodes.",
            "\n".join(roles(cells, labels)),
        ]
    if any(c.believed for c in cells):
        parts += [
            "## What can be represented",
            "The joint action that each fitted model ranks first, after training on play with equal probabilities. "
            "The best is `c c` in the monotonic game and `a a` in the other two. A monotonic mixer cannot represent "
            "the latter two, but a central critic can.",
            "\n".join(beliefs(cells)),
        ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds")
    parser.add_argument("--workers", type=int, default=1, help="processes that work at the same time")
    parser.add_argument("--algorithms", nargs="*", help="labels or names of algorithms; default: all")
    parser.add_argument("--games", nargs="*", choices=list(BY_NAME), help="only these games; default: all")
    parser.add_argument("--markdown", type=Path, help="also write the page to this file")
    parser.add_argument("--cells", type=Path, help="keep finished cells in this file, and use those that are in it")
    args = parser.parse_args()
    labels = [c.label for c in CONTENDERS if not args.algorithms or {c.label, c.name} & set(args.algorithms)]
    games = args.games or list(BY_NAME)
    todo, found = jobs(args.seeds, labels, games), known(args.cells)
    cells: list[Cell] = []
    with ProcessPoolExecutor(args.workers) as pool:
        try:
            fresh = pool.map(cell, [job for job in todo if job not in found])
            for job in todo:
                done = found.get(job) or next(fresh)
                cells.append(done)
                if args.cells and job not in found:
                    with args.cells.open("a") as file:
                        file.write(json.dumps({"code": code(), "cell": asdict(done)}) + "\n")
                frozen = f"frozen {' '.join(done.frozen)}" if done.frozen else ""
                said = f"{done.label:34} {done.game:20} seed {done.seed} {frozen:14} {done.result:7.3f}"
                print(f"{len(cells):4}/{len(todo)} {said}  {done.seconds:.1f} s", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
    seeds = min((seed for _, _, seed, _, _ in todo[len(cells) :]), default=args.seeds)
    if not seeds:
        sys.exit("interrupted before the first seed was complete; nothing to print.")
    cells = [c for c in cells if c.seed < seeds]
    shown = [word for word in sys.argv if args.cells is None or word not in ("--cells", str(args.cells))]
    text = page(cells, labels, games, "python " + " ".join(shown))
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

"""Golden runs: the same short trainings with an older commit and with the working tree must agree bit for bit.

    python tests/golden [--base COMMIT] [NAME ...]

The older commit is checked out into a git worktree under `.golden/`. Its results are kept there and reused while the
machine, torch and this list of runs stay the same. Both train the recipes of the older commit. Every run uses one
thread on the CPU, because the number of threads changes how sums are rounded. Compared are the final weights of every
trained policy, all metrics except clocks and speeds, and the results of the evaluations. A difference is printed with
its first place, and the exit code is 1.

A commit that changes results on purpose lists the runs that change in `CHANGED`, with the reason. A listed run that is
identical is an error too: then the entry is wrong, or the fix is gone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / ".golden"
BASE = "f7ce2f1"
CLOCKS = (
    "time",
    "tokens_per_second",
    "memory_gib",
)  # metrics that differ between two runs of the same code, and seconds/*
ADDED = ("/probe", "/tokens", "reply_tokens")  # endings of metrics that the older commit does not have
ADDED_GROUPS = ("league/games/",)  # and beginnings
# The older commit counted only the replies that a tree kept, and no reply as cut off that was then refused.
REDEFINED = ("turns_cut", "turns_illegal")
# Computed from replies that the engine scores. It scores them together with their prompts in one pass now, which rounds
# log-probs differently in their last digit; nothing that is sampled or trained depends on them.
RESCORED = ("/eval/exploitability", "/eval/stray")
_ROUNDING = 1e-6

_SEED = "networks, replay and noise follow the recipe's seed"
CHANGED = {
    "ppo": "the critic's minibatches are drawn with the recipe's seed",
    "ppo-tokens": "the critic's minibatches are drawn with the recipe's seed",
    "qmix": _SEED,
    "vdn": _SEED,
    "maddpg": _SEED,
    "maddpg-gumbel": f"{_SEED}; a decision weighs the same whatever its number of legal replies",
    "mappo": "values are normalised (PopArt)",
    "dapo": "other tasks are played in place of groups that tie, and replies that were cut off are left out",
    "rae": "a baseline is named for its role and who sits there; the weights are identical",
}


@dataclass(frozen=True)
class Run:
    name: str
    recipe: str
    overrides: tuple[str, ...]


def _run(name: str, recipe: str, *overrides: str) -> Run:
    common = ("eval.before=false", "eval.after=false", "records.tensorboard=off", "checkpoint.every=100")
    return Run(name, recipe, (*common, *overrides))


_BARE = ("train.steps=4", "eval.every=4", "eval.short_games=4", "rollout.tasks=6")
_SHORT = (*_BARE, "warmstart.episodes=60")
RUNS = [
    _run("demo", "tictactoe/demo.toml", *_SHORT, "warmstart.episodes=1000", "rollout.tasks=12"),
    _run("ppo", "tictactoe/ppo.toml", *_SHORT, "rollout.tasks=24"),
    _run("ppo-tokens", "tictactoe/ppo.toml", *_SHORT, "algorithm.level=token", "rollout.tasks=16"),
    _run("l2", "tictactoe/l2.toml", *_SHORT),
    _run("l3", "tictactoe/l3.toml", *_SHORT, "train.steps=2"),
    _run("qmix", "matrix/qmix.toml", *_SHORT, "sampling.legal=true", "algorithm.warmup=1"),
    _run("vdn", "matrix/vdn.toml", *_SHORT, "sampling.legal=true", "algorithm.warmup=1"),
    _run("maddpg", "matrix/maddpg.toml", *_SHORT, "sampling.legal=true", "algorithm.warmup=1"),
    _run("maddpg-gumbel", "matrix/maddpg_gumbel.toml", *_BARE, "sampling.legal=true", "algorithm.warmup=1"),
    _run("league", "matrix/league.toml", "train.steps=12", "rollout.tasks=16", "eval.every=6"),
    _run("tree-playouts", "kuhn/c3.toml", *_SHORT),
    _run("online-dpo", "tictactoe/online_dpo.toml", *_SHORT),
    _run("coma", "matrix/coma.toml", *_SHORT, "sampling.legal=true", "rollout.tasks=16", "env.game=prisoners_dilemma"),
    _run("mappo", "matrix/mappo.toml", *_SHORT, "sampling.legal=true"),
    _run("shapley", "matrix/shapley.toml", *_SHORT, "sampling.legal=true"),
    _run("magrpo", "matrix/magrpo.toml", *_SHORT, "sampling.legal=true"),
    _run("maporl", "matrix/maporl.toml", *_SHORT, "sampling.legal=true"),
    _run("custom", "matrix/custom.toml", *_SHORT, "sampling.legal=true"),
    _run("dapo", "matrix/dapo.toml", *_SHORT, "sampling.legal=true"),
    _run("reinforce", "matrix/reinforce_pp.toml", *_SHORT, "sampling.legal=true"),
    _run("rae", "tictactoe/rae.toml", *_SHORT),
    _run("plan-path-l2", "plan_path/l2.toml", *_SHORT),
    _run(
        "tools", "math/calculator.toml", *_SHORT, "policies.reasoner.base=tiny-64x2", "warmstart.lr=3e-3",
        "warmstart.episodes=60", "warmstart.epochs=14", "train.lr=1e-4", "env.largest=9", "rollout.tasks=4",
    ),
    _run(
        "kl-reward", "matrix/grpo.toml", *_SHORT, "sampling.legal=true", "algorithm.kl_reward=0.05",
        'algorithm.overlong={length=4,margin=3}', "train.minibatches=3", "algorithm.entropy=0.01",
    ),
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these runs")
    parser.add_argument("--base", default=BASE, help="the commit to compare with")
    given = parser.parse_args()
    unknown = set(given.names) - {run.name for run in RUNS}
    if unknown:
        parser.error(f"no run is called {', '.join(sorted(unknown))}; known: {', '.join(r.name for r in RUNS)}")
    runs = [run for run in RUNS if not given.names or run.name in given.names]
    old_tree = _checkout(given.base)
    changed = CHANGED if given.base == BASE else {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = [(run, pool.submit(_both, run, given.base, old_tree)) for run in runs]
        wrong = [run.name for run, job in jobs if not _report(run, job.result(), changed.get(run.name))]
    known = sum(run.name in changed for run in runs)
    print(f"{len(runs) - len(wrong)} of {len(runs)} runs are as expected: bit-identical to {given.base}, or", end=" ")
    print(f"changed for a reason that is listed ({known} of them).")
    return 1 if wrong else 0


def _checkout(commit: str) -> Path:
    tree = STORE / f"tree-{commit}"
    if not tree.is_dir():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--detach", str(tree), commit], cwd=ROOT, check=True)
    return tree


def _both(run: Run, base: str, old_tree: Path) -> tuple[list[str], float, float]:
    """The differences, and how many seconds the old code (0: its result was stored) and the new code took."""
    kept = STORE / f"{base}-{_key(run)}.json"
    before = 0.0
    if not kept.is_file():
        began = time.monotonic()
        result = _train(run, old_tree, old_tree)
        before = time.monotonic() - began
        kept.write_text(json.dumps(result))
    began = time.monotonic()
    found = _train(run, ROOT, old_tree)
    return (
        _differences("", _comparable(json.loads(kept.read_text())), _comparable(json.loads(json.dumps(found)))),
        before,
        time.monotonic() - began,
    )


def _key(run: Run) -> str:
    machine = (platform.machine(), platform.processor(), metadata.version("torch"), metadata.version("transformers"))
    return f"{run.name}-{hashlib.sha256(repr((run, machine)).encode()).hexdigest()[:12]}"


def _train(run: Run, tree: Path, older: Path) -> dict[str, Any]:
    """Train with the code of `tree` and a recipe of `older`."""
    folder = STORE / "runs" / f"{run.name}-{'new' if tree == ROOT else 'old'}"
    shutil.rmtree(folder, ignore_errors=True)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    env = {**os.environ, **threads, "PYTHONPATH": str(tree / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", "from interplay.cli.main import main; main()", "train"]
    command += [str(older / "recipes" / run.recipe), "--run", str(folder), *run.overrides]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"golden run {run.name} failed in {tree}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    weights = sorted((newest / "policies").rglob("*.safetensors"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        "weights": {str(p.relative_to(newest)): hashlib.sha256(p.read_bytes()).hexdigest() for p in weights},
        "metrics": rows,
    }


def _comparable(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "metrics": [{k: v for k, v in row.items() if _compared(k)} for row in result["metrics"]]}


def _compared(metric: str) -> bool:
    new = metric.endswith(ADDED) or metric.startswith(ADDED_GROUPS)
    return metric not in (*CLOCKS, *REDEFINED) and "seconds" not in metric and not new


def _differences(where: str, old: Any, new: Any) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted({*old, *new})
        return [d for k in keys for d in _differences(f"{where}/{k}", old.get(k, "missing"), new.get(k, "missing"))]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [d for i, (a, b) in pairs for d in _differences(f"{where}[{i}]", a, b)]
    same = old == new or (old != old and new != new)
    if where.endswith(RESCORED) and isinstance(old, float) and isinstance(new, float):
        same = abs(old - new) <= _ROUNDING
    return [] if same else [f"{where}: {old!r} became {new!r}"]


def _report(run: Run, result: tuple[list[str], float, float], reason: str | None) -> bool:
    """Whether the result is as expected: identical, or changed if a reason is listed."""
    found, before, after = result
    took = f"{after:.0f} s" + (f", before {before:.0f} s" if before else "")
    if reason is None:
        verdict = f"{len(found)} DIFFERENCES" if found else "identical"
    else:
        verdict = f"changed, as listed: {reason}" if found else f"IDENTICAL, but listed as changed: {reason}"
    print(f"{run.name:16} {verdict} ({took})", flush=True)
    for line in found[:5] if reason is None else ():
        print(f"    {line}")
    return bool(found) == (reason is not None)


if __name__ == "__main__":
    sys.exit(main())

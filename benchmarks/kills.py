"""Tests random kills: runs that are killed and resumed several times must be identical to uninterrupted runs.

    python benchmarks/kills.py [--kills 8] [--seed 0] [--folder FOLDER] [NAME ...]

Each of seven short recipes is trained once without interruption, and once with `--kills` kills by SIGKILL or SIGTERM. A
kill comes when the run has loaded its models and made none, one or two more steps, after a random part of a step's
time; the seed chooses. (Loading takes longer than such a run, so a random moment after the start would rarely be in a
step.) The weights of every policy, the optimisers and critics, all metrics except times and speeds, and every recorded
episode are compared, bit for bit. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from interplay.cli.exit_codes import STOPPED
from interplay.training import checkpoint

ROOT = Path(__file__).resolve().parents[1]
STEPS = 24
RECIPES = {
    "demo": ("tictactoe/demo.toml", "warmstart.episodes=60", "rollout.tasks=6"),
    "ppo": ("tictactoe/ppo.toml", "warmstart.episodes=60", "rollout.tasks=8"),
    "league": ("matrix/league.toml", "rollout.tasks=8"),
    "qmix": ("matrix/qmix.toml", "warmstart.episodes=60", "rollout.tasks=6", "sampling.legal=true"),
    "judge": ("rlhf/story.toml", "rollout.tasks=4"),
    "rubric": (
        "rlhf/smollm2/free.toml", "sampling.max_tokens=6", "rollout.tasks=2",
        *(f"policies.{name}.base=tiny" for name in ("learner", "partner", "judge")),
    ),
    "tree": ("kuhn/c3.toml", "warmstart.episodes=60", "rollout.tasks=6"),
}  # fmt: skip
COMMON = (
    f"train.steps={STEPS}", "checkpoint.every=1", "eval.before=false", "eval.after=false", "eval.every=0",
    "records.tensorboard=off",
)  # fmt: skip
MORE = 2  # the most steps that a run makes between two kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES], help="only these recipes")
    parser.add_argument("--kills", type=int, default=8, help="kills of each recipe")
    parser.add_argument("--seed", type=int, default=0, help="chooses the moments and signals of the kills")
    parser.add_argument("--folder", type=Path, help="where the runs go; default: a temporary folder")
    given = parser.parse_args()
    if given.kills * (MORE + 1) > STEPS:
        parser.error(f"--kills is {given.kills}; the runs have {STEPS} steps, enough for {STEPS // (MORE + 1)} kills.")
    root = given.folder or Path(tempfile.mkdtemp(prefix="interplay-kills-"))
    failed = 0
    for name in given.names or RECIPES:
        rng = random.Random(f"{given.seed} {name}")
        whole, cut = root / f"{name}-whole", root / f"{name}-killed"
        _finish(name, whole)
        killed = [_kill(name, cut, rng, _seconds(whole)) for _ in range(given.kills)]
        _finish(name, cut)
        differ = list(_differences(whole, cut))
        failed += bool(differ)
        verdict = f"DIFFERS: {differ[0]}" if differ else "identical"
        print(f"{name}: {', '.join(f'{kind} after step {step}' for kind, step in killed)}; {verdict}", flush=True)
    print(f"{len(given.names or RECIPES) - failed} of {len(given.names or RECIPES)} runs end as if never killed")
    return 1 if failed else 0


def _start(name: str, folder: Path) -> subprocess.Popen[bytes]:
    recipe, *overrides = RECIPES[name]
    command = [sys.executable, "-m", "interplay", "train", str(ROOT / "recipes" / recipe), "--run", str(folder)]
    command += ["--resume", *COMMON, *overrides]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _finish(name: str, folder: Path) -> None:
    process = _start(name, folder)
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"{name} failed: {errors.decode()}")


def _kill(name: str, folder: Path, rng: random.Random, seconds: float) -> tuple[str, int]:
    """Start the run, and end it in a step; a step takes about `seconds`. Returns the signal and how many steps
    the run has made in all."""
    kind, more, wait = rng.choice([signal.SIGKILL, signal.SIGTERM]), rng.randint(0, MORE), rng.uniform(0.0, seconds)
    began = time.time()
    process = _start(name, folder)
    while process.poll() is None and _steps_since(folder, began) < more:
        time.sleep(0.01)
    time.sleep(wait)
    process.send_signal(kind)
    _, errors = process.communicate()
    if process.returncode != (STOPPED if kind == signal.SIGTERM else -kind):
        raise SystemExit(f"{name} ended with {process.returncode} after {kind.name}: {errors.decode()}")
    return kind.name, len(_times(folder))


def _steps_since(folder: Path, began: float) -> int:
    """The steps that a run has made since then; -1 while it loads its models: then it writes run.json."""
    file = folder / "run.json"
    if not file.is_file() or file.stat().st_mtime <= began:
        return -1
    return sum(moment > began for moment in _times(folder))


def _times(folder: Path) -> list[float]:
    """When each step ended. The last line may be incomplete."""
    file = folder / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return [json.loads(line)["time"] for line in lines]


def _seconds(folder: Path) -> float:
    """The mean time of a step."""
    times = _times(folder)
    return (times[-1] - times[0]) / (len(times) - 1)


def _differences(one: Path, two: Path) -> Any:
    """Everything in which two runs differ, in words."""
    a, b = (checkpoint.read(folder / "checkpoints" / f"step-{STEPS:06d}") for folder in (one, two))
    for key in ("versions", "algorithm", "curriculum", "league", "guards"):
        if a.trainer[key] != b.trainer[key]:
            yield f"{key} of the trainer"
    left, right = _flat(a.state()), _flat(b.state())
    for policy in sorted(p.name for p in (a.folder / "policies").iterdir()):
        for file in sorted(a.policy(policy).glob("*.safetensors")):
            left |= {f"{policy}/{k}": v for k, v in load_file(file).items()}
            right |= {f"{policy}/{k}": v for k, v in load_file(b.policy(policy) / file.name).items()}
    if left.keys() != right.keys():
        yield "names of what was saved"
    for key, value in left.items():
        other = right.get(key)
        if not (torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other):
            yield key
    for name, cleaned in (("metrics.jsonl", _metrics), ("episodes.jsonl", _episode)):
        lines = [[cleaned(json.loads(x)) for x in (f / name).read_text().splitlines()] for f in (one, two)]
        if lines[0] != lines[1]:
            yield name


def _flat(tree: Any, path: str = "") -> dict[str, Any]:
    if isinstance(tree, dict):
        return {k: v for key, value in tree.items() for k, v in _flat(value, f"{path}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {k: v for i, value in enumerate(tree) for k, v in _flat(value, f"{path}/{i}").items()}
    return {path: tree}


def _metrics(row: dict[str, Any]) -> dict[str, Any]:
    clocks = ("time", "tokens_per_second", "memory_gib")
    return {k: v for k, v in row.items() if k not in clocks and "seconds" not in k}


def _episode(row: Any) -> Any:
    """A record without the times of the episode and of all its samples: of players, of judges and of playouts. The
    time limit of a tool stays."""
    if isinstance(row, list):
        return [_episode(part) for part in row]
    if not isinstance(row, dict):
        return row
    return {k: _episode(v) for k, v in row.items() if k != "seconds" or "parameters" in row}


if __name__ == "__main__":
    sys.exit(main())

"""Time and memory of every recipe on this machine: python benchmarks/recipes.py [NAME ...] [--seconds 90] [--json FILE]

Each recipe is rehearsed by `interplay train RECIPE --dry-run --memory --time --json` in a process of its own: three
steps, scaled up to the whole recipe. Without a GPU, recipes with real models are not timed; their memory is
estimated for a GPU. On a GPU the estimate includes the key-value cache; on a CPU it does not, because memory is taken
only as it is used. The table is Markdown. A recipe that cannot run here (a model, data, a server or a package is
missing) is listed with the reason. `--seconds 0` times nothing and only estimates memory. With --json, results are kept
in a file, and recipes that are already in it are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NO_GPU = "needs a GPU; not timed here"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="recipes such as tictactoe/demo; default: all")
    parser.add_argument("--seconds", type=float, default=90.0, help="limit for one recipe; 0: estimate its memory only")
    parser.add_argument("--total", type=float, default=1e9, help="begin no recipe after this many seconds")
    parser.add_argument("--json", type=Path, help="file of results, read and written")
    given = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    known: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.is_file() else {}
    began = time.monotonic()
    for name, path in recipes().items():
        if (given.names and name not in given.names) or name in known or time.monotonic() - began > given.total:
            continue
        known[name] = rehearsed(path, given.seconds)
        print(f"{name}: {known[name]}", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(known, indent=1))
    print(table(known))


def recipes() -> dict[str, Path]:
    """All recipes by name. A file without policies is a study of several runs."""
    folder = ROOT / "recipes"
    found = [path for path in sorted(folder.rglob("*.toml")) if "policies" in tomllib.loads(path.read_text("utf-8"))]
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}


def rehearsed(path: Path, seconds: float) -> dict[str, Any]:
    """Time and memory of a recipe, or the reason why it cannot run here."""
    import torch

    if not torch.cuda.is_available() and not tiny(path):
        return estimated(path, NO_GPU, "device=cuda")
    if seconds <= 0:
        return estimated(path, "not timed")
    try:
        return _dry_run(path, seconds)
    except subprocess.TimeoutExpired:
        return estimated(path, f"not timed: three steps take more than {seconds:g} s")


def estimated(path: Path, why: str, *changes: str) -> dict[str, Any]:
    """The memory of a recipe that is not timed."""
    from interplay.cli.dry_run import downloads
    from interplay.config import load
    from interplay.errors import InterplayError
    from interplay.rollout.resolve import resolve
    from interplay.training.memory import estimate

    try:
        plan = resolve(load(path, changes))
        if absent := list(downloads(plan.recipe)):
            return {"why": f"{why}, and {', '.join(absent)} is not on this machine"}
        needs = estimate(plan)
    except (InterplayError, ImportError, OSError) as error:
        return {"why": (str(error).strip().splitlines() or [type(error).__name__])[0]}
    return {"untimed": why, "steps": plan.recipe.train.steps, "needed": needs.needed, "device": needs.device}


def tiny(path: Path) -> bool:
    """Whether all models of a recipe are the small ones that Interplay makes itself."""
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    return all(base.startswith("tiny") for base in re.findall(r'\bbase = "([^"]+)"', text))


def _dry_run(path: Path, seconds: float) -> dict[str, Any]:
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "interplay", "train", str(path), "--dry-run", "--memory", "--time", "--json"],
        cwd=ROOT, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "failed")
        return {"why": said.removeprefix("error: ")}
    found = json.loads(done.stdout)
    out = {key: found["time"][key] for key in ("seconds", "steps", "step", "peak")}
    memory = found["memory"]
    # What the cache of a GPU takes is used; on a CPU, memory is taken only as it is used.
    needed = memory["total" if memory["device"] == "cuda" else "needed"]
    return {**out, "needed": needed, "device": memory["device"]}


def table(known: dict[str, Any]) -> str:
    rows = ["| recipe | time | steps | a step | memory: estimate | memory: used |", "|---|---:|---:|---:|---:|---:|"]
    lacking = []
    for name, found in sorted(known.items()):
        if "why" in found:
            lacking.append(f"| `{name}` | {_plain(found['why'])} |")
            continue
        if "seconds" in found:
            took = [_time(found["seconds"]), found["steps"], f"{found['step']:.2g} s"]
        else:
            took = [found["untimed"], found["steps"], ""]
        sizes = [_size(found["needed"]), _size(found["peak"]) if "peak" in found else ""]
        rows.append("| " + " | ".join(map(str, [f"`{name}`", *took, *sizes])) + " |")
    if lacking:
        rows += ["", "| not run here | why |", "|---|---|", *lacking]
    return "\n".join([_machine(), "", *rows])


def _machine() -> str:
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{platform.machine()} CPU"
    return f"{device}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, torch {torch.__version__}:"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _plain(text: str) -> str:
    """A reason without paths of this machine, on one line of a table."""
    short = re.sub(r"(/[\w.-]+){2,}/", "…/", text).replace("|", "\\|")
    return short if len(short) <= 160 else short[:157] + "…"


if __name__ == "__main__":
    main()

"""Time and memory of every recipe on this machine: python benchmarks/recipes.py [NAME ...] [--seconds 90] [--json FILE]

Each recipe is rehearsed by `interplay train RECIPE --dry-run --memory --time --json` in a process of its own: three
steps, scaled up to the whole recipe. The table is Markdown. On a GPU the estimate includes the key-value cache; on a
CPU it does not, because memory is taken only as it is used. A recipe that cannot run here (a model, data, a server or a
package is missing) is listed with the reason. With --json, results are kept in a file, and recipes that are already in
it are not run again.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="recipes such as tictactoe/demo; default: all")
    parser.add_argument("--seconds", type=float, default=90.0, help="limit for one recipe")
    parser.add_argument("--total", type=float, default=1e9, help="begin no recipe after this many seconds")
    parser.add_argument("--json", type=Path, help="file of results, read and written")
    given = parser.parse_args()
    known: dict[str, Any] = json.loads(given.json.read_text()) if given.json and given.json.is_file() else {}
    began = time.monotonic()
    for path in sorted((ROOT / "recipes").glob("*/*.toml")):
        name = f"{path.parent.name}/{path.stem}"
        if (given.names and name not in given.names) or name in known or time.monotonic() - began > given.total:
            continue
        known[name] = rehearsed(path, given.seconds)
        print(f"{name}: {known[name]}", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(known, indent=1))
    print(table(known))


def rehearsed(path: Path, seconds: float) -> dict[str, Any]:
    """Time and memory of a recipe, or the reason why it cannot run here."""
    command = [sys.executable, "-m", "interplay", "train", str(path), "--dry-run", "--memory", "--time", "--json"]
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": source, "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"why": f"three steps take more than {seconds:g} s"}
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in lines if line.startswith("error: ")), lines[-1] if lines else "failed")
        return {"why": said.removeprefix("error: ")}
    found = json.loads(done.stdout)
    return {
        "seconds": found["time"]["seconds"], "steps": found["time"]["steps"], "step": found["time"]["step"],
        "peak": found["time"]["peak"], "needed": found["memory"]["needed"], "total": found["memory"]["total"],
        "device": found["memory"]["device"],
    }  # fmt: skip


def table(known: dict[str, Any]) -> str:
    rows = ["| recipe | time | steps | a step | memory: estimate | memory: used |", "|---|---:|---:|---:|---:|---:|"]
    lacking = []
    for name, found in sorted(known.items()):
        if "why" in found:
            lacking.append(f"| `{name}` | {_plain(found['why'])} |")
            continue
        cells = [f"`{name}`", _time(found["seconds"]), str(found["steps"]), f"{found['step']:.2g} s"]
        estimate = found["total"] if found["device"] == "cuda" else found["needed"]  # what a GPU's cache takes is used
        rows.append("| " + " | ".join([*cells, _size(estimate), _size(found["peak"])]) + " |")
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

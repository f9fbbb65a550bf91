"""The README's first command, measured: what `make demo` trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "wins", "illegal"), [("demo", 0.75, 0.01), ("l2", 0.7, 0.05), ("l3", 0.7, 0.05)])
def test_the_demo_learns(tmp_path: Path, recipe: str, wins: float, illegal: float) -> None:
    """From random weights to at least 75% wins against random over both seats (random play gets 44%) and under 1%
    illegal moves, without masking; at least 70% with an adapter or a model per role, each of which sees half the turns.
    The README says how long it took."""
    run = tmp_path / "run"
    command = [sys.executable, "-c", "from interplay.cli.main import main; main()", "train"]
    arguments = [str(ROOT / f"recipes/tictactoe/{recipe}.toml"), "--run", str(run)]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((run / "report.json").read_text())
    stages = {stage: [r for r in rows if r["opponent"] == "bot:random"] for stage, rows in report["results"].items()}
    assert {r["role"] for r in stages["after"]} == {"X", "O"}
    assert all(r["games"] >= 500 for r in stages["after"])

    def share(stage: str, part: str, of: str) -> float:
        return sum(r[part] for r in stages[stage]) / sum(r[of] for r in stages[stage])

    assert share("before", "wins", "games") < 0.55, "imitation alone plays at random"
    assert share("after", "wins", "games") >= wins
    assert share("after", "illegal", "turns") < illegal

"""Measures the README's first command, `make demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long(minutes=5)
@pytest.mark.slow
def test_the_demo_learns(tmp_path: Path) -> None:
    """From random weights to at least 70% wins against random over both seats (random play gets 44%), 30% draws against
    the perfect player and under 1% illegal moves, without masking. Five seeds had 76 to 85% wins and 57 to 81% draws
    (docs/learning.md); other machines round differently and play other games."""
    run = tmp_path / "run"
    command = [sys.executable, "-c", "from interplay.cli.main import main; main()", "train"]
    arguments = [str(ROOT / "recipes/tictactoe/demo.toml"), "--run", str(run)]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads((run / "report.json").read_text())
    stages = {stage: [r for r in rows if r["opponent"] == "bot:random"] for stage, rows in report["results"].items()}
    perfect = [r for r in report["results"]["after"] if r["opponent"] == "bot:minimax"]
    assert {r["role"] for r in stages["after"]} == {"X", "O"}
    assert all(r["games"] >= 500 for r in stages["after"])

    def share(stage: str, part: str, of: str) -> float:
        return sum(r[part] for r in stages[stage]) / sum(r[of] for r in stages[stage])

    assert share("before", "wins", "games") < 0.55, "imitation alone plays at random"
    assert share("after", "wins", "games") >= 0.7
    assert sum(r["draws"] for r in perfect) >= 0.3 * sum(r["games"] for r in perfect)
    assert share("after", "illegal", "turns") < 0.01

"""recipes/kuhn/c3.toml comes near an equilibrium by self-play alone, in minutes on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.long
@pytest.mark.slow
def test_kuhn_self_play_comes_near_an_equilibrium(tmp_path: Path) -> None:
    """NashConv/2 of the final policy is below 0.1; playing all moves with equal probability has 0.458."""
    run = tmp_path / "run"
    command = [sys.executable, "-c", "from interplay.cli.main import main; main()", "train"]
    less = ["eval.games=2", "eval.every=0"]  # only the exploitability before and after is looked at
    arguments = [str(ROOT / "recipes/kuhn/c3.toml"), *less, "--run", str(run)]
    done = subprocess.run([*command, *arguments], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "exploitability after" in done.stdout
    found = json.loads((run / "report.json").read_text())["exploitability"]
    assert found["before"]["eval/exploitability"] > 0.4
    assert found["after"]["eval/exploitability"] < 0.1
    assert found["after"]["eval/stray"] < 0.05

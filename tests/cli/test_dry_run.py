"""`interplay train --dry-run`: what it prints, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interplay.cli.main import app
from interplay.errors import InterplayError

RECIPE = str(Path(__file__).parents[2] / "recipes" / "tictactoe" / "demo.toml")


def test_json_is_one_object_that_programs_can_read() -> None:
    done = CliRunner().invoke(app, ["train", RECIPE, "train.steps=7", "--dry-run", "--json"])
    found = json.loads(done.stdout)
    assert found["recipe"]["train"]["steps"] == 7 and found["seats"] == {"X": "player", "O": "player"}
    assert found["plan"].startswith("Tree(") and found["memory"] is None


def test_memory_is_listed_by_part() -> None:
    done = CliRunner().invoke(app, ["train", RECIPE, "device=cpu", "--dry-run", "--json", "--memory"])
    needs = json.loads(done.stdout)["memory"]
    assert needs["needed"] == sum(needs["parts"].values()) > needs["parts"]["weights"] > 0
    assert needs["device"] == "cpu" and needs["available"] > needs["needed"]
    done = CliRunner().invoke(app, ["train", RECIPE, "--dry-run", "--memory"])
    assert done.exit_code == 0 and "needs about" in done.stdout


@pytest.mark.parametrize(
    ("change", "sentence"),
    [("policies.player.base=no-such.gguf", "no-such.gguf"), ("train.micro_batch_tokens=9000000000", "the run needs")],
)
def test_a_run_that_could_not_start_is_refused(change: str, sentence: str) -> None:
    """Without --memory nothing is loaded, so neither is found."""
    assert CliRunner().invoke(app, ["train", RECIPE, change, "--dry-run"]).exit_code == 0
    done = CliRunner().invoke(app, ["train", RECIPE, change, "--dry-run", "--memory"])
    assert isinstance(done.exception, InterplayError) and sentence in str(done.exception)

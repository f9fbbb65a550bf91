"""`interplay eval` of seats that hold only bots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interplay.cli.main import app
from interplay.models import load as loading

RECIPE = """
name = "bots"
[env]
name = "tictactoe"
[policies.player]
base = "tiny"
[seats]
X = "player"
O = "player"
[algorithm]
name = "grpo"
[eval]
games = 6
opponents = ["bot:random"]
"""


def test_a_bot_can_be_measured_alone_and_no_model_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(loading, "load", refuse)
    recipe, out = tmp_path / "bots.toml", tmp_path / "out"
    recipe.write_text(RECIPE)
    done = CliRunner().invoke(app, ["eval", str(recipe), "seats=bot:minimax", "--out", str(out)])
    assert done.exit_code == 0, done.output
    rows = json.loads((out / "eval.json").read_text())["results"]
    assert [(r["policy"], r["role"], r["losses"], r["games"]) for r in rows] == [
        ("bot:minimax", "X", 0, 6),
        ("bot:minimax", "O", 0, 6),
    ]

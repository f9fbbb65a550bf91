"""`interplay new` writes files that work as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interplay.cli.new import Start, class_name, write
from interplay.config import load
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve

ROOT = Path(__file__).parents[2]


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("what", [Start.ENV, pytest.param(Start.ALGORITHM, marks=pytest.mark.slow)])
def test_what_is_written_passes_its_own_test_and_resolves(tmp_path: Path, what: Start) -> None:
    write(what, "my_start", tmp_path)
    done = command(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_my_start.py")
    assert done.returncode == 0, done.stdout + done.stderr
    done = command(tmp_path, "interplay", "train", "my_start.toml", "--dry-run")
    assert done.returncode == 0, done.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "120", "--select", "E,F,B,UP", "."],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout


def test_a_recipe_that_is_written_resolves(tmp_path: Path) -> None:
    (path,) = write(Start.RECIPE, "mine", tmp_path / "deep" / "er")
    assert resolve(load(path)).recipe.name == "mine"


def test_nothing_is_overwritten_and_names_are_checked(tmp_path: Path) -> None:
    write(Start.ENV, "game", tmp_path)
    with pytest.raises(ConfigError, match=r"game.py' already exists; choose another name"):
        write(Start.ENV, "game", tmp_path)
    for bad in ("My-Game", "2game", "class", "", "a/b"):
        with pytest.raises(ConfigError, match="expected small letters"):
            write(Start.ENV, bad, tmp_path)
    assert class_name("my_new_game") == "MyNewGame"

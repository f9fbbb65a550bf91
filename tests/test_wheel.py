"""The built wheel works without a clone of the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from interplay.config import load
from interplay.errors import ConfigError

ROOT = Path(__file__).parents[1]


def test_recipes_of_the_package_are_found_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("recipes/tictactoe/demo.toml", ["seed=4"]).seed == 4
    with pytest.raises(ConfigError, match=r"dmeo.toml' does not exist.* mean 'recipes/tictactoe/demo.toml'"):
        load("recipes/tictactoe/dmeo.toml")
    (tmp_path / "mine.toml").write_text("")  # files beside do not hide the recipes of the package
    for short in ("demo", "tictactoe/demo", "demo.toml"):
        with pytest.raises(ConfigError, match=rf"'{short}' does not exist.* known: recipes/tictactoe/demo.toml\."):
            load(short)
    own = tmp_path / "recipes" / "tictactoe" / "demo.toml"
    own.parent.mkdir(parents=True)
    own.write_text((ROOT / "recipes" / "matrix" / "grpo.toml").read_text())
    assert load("recipes/tictactoe/demo.toml").env.name == "matrix", "a file of one's own comes first"


@pytest.mark.slow
def test_the_wheel_has_everything_and_runs(tmp_path: Path) -> None:
    """Built from files that are committed or new, unpacked into an empty folder, and run from another folder."""
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    question = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(question, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs a checkout, to know which files belong to the package")
    for name in filter(None, listed.stdout.split("\0")):
        old, new = ROOT / name, source / name
        if old.exists():
            new.parent.mkdir(parents=True, exist_ok=True)
            if old.is_symlink():
                new.symlink_to(os.readlink(old))
            else:
                new.write_bytes(old.read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        ".",
    ]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    recipes = {f"interplay/recipes/{p.relative_to(ROOT / 'recipes')}" for p in (ROOT / "recipes").rglob("*.toml")}
    assert recipes <= names and "interplay/viewer/web/app.js" in names and "interplay/py.typed" in names
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    (tmp_path / "empty").mkdir()
    few = [
        "train.steps=1",
        "rollout.tasks=2",
        "warmstart.episodes=20",
        "eval.games=2",
        "policies.player.base=tiny-16x1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "interplay", "demo", *few, "--run", "first"],
        cwd=tmp_path / "empty", env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "empty" / "first" / "report.json").is_file()
    new = subprocess.run(
        [sys.executable, "-m", "interplay", "new", "recipe", "mine"],
        cwd=tmp_path / "empty", env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert new.returncode == 0 and (tmp_path / "empty" / "mine.toml").is_file(), new.stderr

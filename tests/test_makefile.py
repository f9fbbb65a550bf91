"""What the targets of the Makefile would do, without doing it."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Where there is no virtual environment yet."""
    return tmp_path / "venv"


def commands(target: str, venv: Path) -> str:
    """The commands of a target. `make -n` prints them and runs none of them."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    question = ["make", "-n", target, f"VENV={venv}"]
    env = {"PATH": os.environ["PATH"]}  # without the settings of a `make` that started these tests
    return subprocess.run(question, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def test_the_demo_installs_only_what_training_needs(empty: Path) -> None:
    """The packages of the tests take minutes to install, and the demo does not use them."""
    printed = commands("demo", empty)
    assert "install -q --no-compile -c constraints.txt -e ." in printed
    assert "interplay train recipes/tictactoe/demo.toml" in printed
    assert "[dev]" not in printed


@pytest.mark.parametrize(("target", "how"), [("test", "-n 3"), ("test-slow", "-n 3 --dist worksteal")])
def test_the_tests_run_in_several_processes_and_name_the_ten_slowest(target: str, how: str, empty: Path) -> None:
    printed = commands(target, empty)
    assert "[dev]" in printed and f"--durations=10 {how} -m" in printed


def test_clean_removes_every_environment_that_a_target_makes(empty: Path) -> None:
    """They are large. `.gitignore` has a line for each of them."""
    made = re.findall(r"^/(\..+)/$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE)
    removed = commands("clean", empty).split()
    assert len(made) > 4 and [name for name in made if not fnmatch.filter(removed, name)] == []

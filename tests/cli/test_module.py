"""The command can be called as a module, under either name."""

from __future__ import annotations

import subprocess
import sys

import pytest


def called(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["interplay", "interplay.cli.main"])
def test_the_module_is_the_command(module: str) -> None:
    """Audit B9: one did not exist, and the other did nothing and exited with 0."""
    done = called(module, "check", "kuhn", "--episodes", "1")
    assert "12 passed, 0 failed" in done.stdout and done.returncode == 0, done.stderr
    wrong = called(module, "check", "nosuch")
    assert wrong.returncode == 2 and "'nosuch' is not an environment" in wrong.stderr

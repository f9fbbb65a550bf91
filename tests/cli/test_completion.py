"""Shells can complete the commands and options of `interplay`."""

from __future__ import annotations

import os
import subprocess
import sys


def completed(words: str) -> set[str]:
    """What bash would offer after these words."""
    code = "import sys; sys.argv = ['interplay']; from interplay.cli.main import main; main()"
    env = {**os.environ, "_INTERPLAY_COMPLETE": "complete_bash", "COMP_WORDS": words}
    env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    return set(done.stdout.split())


def test_commands_and_options_are_completed() -> None:
    assert completed("interplay tr") == {"train"}
    assert {"--resume", "--run"} <= completed("interplay train --r")
    assert completed("interplay new al") == {"algorithm"}

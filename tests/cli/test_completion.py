"""Shells can complete the commands and options of `interplay`."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

CODE = "import sys; sys.argv[0] = 'interplay'; from interplay.cli.main import main; main()"


def completed(words: str) -> set[str]:
    """What bash would offer after these words."""
    env = {**os.environ, "_INTERPLAY_COMPLETE": "complete_bash", "COMP_WORDS": words}
    env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True)
    return set(done.stdout.split())


def test_commands_and_options_are_completed() -> None:
    assert completed("interplay tr") == {"train"}
    assert {"--resume", "--run"} <= completed("interplay train --r")
    assert completed("interplay new al") == {"algorithm"}


def installed(home: Path) -> dict[str, str]:
    """The environment of somebody in `home` who has the command `interplay` and its completion for zsh."""
    command = home / "bin" / "interplay"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{CODE}" "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "HOME": str(home), "PATH": f"{command.parent}:{os.environ['PATH']}", "TERM": "xterm"}
    words = [str(command), "--install-completion", "zsh"]  # the name of the shell is asked for if it is not looked for
    subprocess.run(words, env={**env, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}, check=True)
    return env


def test_the_script_for_zsh_completes_when_it_is_loaded(tmp_path: Path) -> None:
    installed(tmp_path)
    script = (tmp_path / ".zfunc/_interplay").read_text()
    assert script.endswith('compdef _interplay_completion interplay\n_interplay_completion "$@"\n')
    assert script.count("setopt local_options rc_quotes\n") == 1


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_the_first_tab_in_a_real_zsh_shows_the_commands(tmp_path: Path) -> None:
    env = installed(tmp_path)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-i"], {**env, "PROMPT": "ready> "})
    seen, end = b"", time.monotonic() + 600
    try:
        typed = False
        while time.monotonic() < end and b"show one's" not in seen:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
            if not typed and b"ready> " in seen:
                os.write(terminal, b"interplay \t")
                typed = True
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert b"algorithms" in seen and b"show one's" in seen

"""The Slurm job of the examples, with a replacement for scontrol."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = """
name = "small"
device = "cpu"
seats = "player"
[env]
name = "tictactoe"
size = 2
line = 2
[policies.player]
base = "tiny-16x1"
[algorithm]
name = "grpo"
group = 4
[sampling]
max_tokens = 2
[rollout]
tasks = 2
[train]
steps = STEPS
lr = 1e-2
[checkpoint]
every = 1000
[eval]
before = false
after = false
[records]
tensorboard = "off"
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the script is written for bash")
def test_the_job_requeues_itself_until_the_run_is_finished(tmp_path: Path) -> None:
    """SIGUSR1 to the script ends the run with a checkpoint and requeues the job; the next part continues and
    finishes."""
    tools = tmp_path / "tools"
    tools.mkdir()
    commands = {
        "scontrol": f'#!/bin/bash\necho "$@" >> {tmp_path}/requeued\n',
        "interplay": f'#!/bin/bash\nexec {sys.executable} -c "from interplay.cli.main import main; main()" "$@"\n',
    }
    for name, text in commands.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    recipe, run = tmp_path / "small.toml", tmp_path / "run"
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "17"}

    def job(steps: int) -> subprocess.Popen[str]:
        recipe.write_text(RECIPE.replace("STEPS", str(steps)))
        command = ["bash", str(ROOT / "examples" / "slurm.sh"), str(recipe), str(run)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    first = job(100_000)
    until = time.monotonic() + 900
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_text().count("\n") < 2:
        assert first.poll() is None and time.monotonic() < until, first.communicate()[0]
        time.sleep(0.05)
    first.send_signal(signal.SIGUSR1)
    out, _ = first.communicate(timeout=900)
    assert first.returncode == 75, out
    assert "--resume" in out
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    done = (run / "metrics.jsonl").read_text().count("\n")

    # The recipe in the run folder is what goes on, so its number of steps is lowered there.
    stored = (run / "run.json").read_text()
    (run / "run.json").write_text(stored.replace("100000", str(done + 2)))
    second = job(done + 2)
    out, _ = second.communicate(timeout=900)
    assert second.returncode == 0, out
    assert (run / "metrics.jsonl").read_text().count("\n") == done + 2
    assert (tmp_path / "requeued").read_text() == "requeue 17\n", "a finished run is not put back"

"""Programs that a model wrote, and programs that ask models, run where an episode is played: on a rollout worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleets import RECIPE, play
from runs import rows

from interplay.envs.programs.process import ProcessRun
from interplay.execution.sandbox import Sandbox
from interplay.rollout.records import read

TEAMS = Path(__file__).parents[1] / "envs" / "programs" / "teams"
SHORT = {
    **{key: RECIPE[key] for key in ("name", "policies", "algorithm", "records", "checkpoint")},
    "sampling": {"max_tokens": 4},
    "rollout": {"tasks": 2},
    "train": {"steps": 1},
    "cluster": {"rollout_workers": 1, "worker_cpus": 0.0},
}


@pytest.fixture(scope="module", autouse=True)
def teams_can_be_imported() -> Iterator[None]:
    """Set before the cluster starts: its processes have the environment variables that this process has then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TEAMS))
        patch.setenv("PYTHONPATH", str(TEAMS), prepend=os.pathsep)
        yield


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("this ran in the process of the run")


@pytest.mark.slow
def test_programs_run_in_the_sandbox_of_a_worker(tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expert's programs pass all hidden tests, for which each must run."""
    monkeypatch.setattr(Sandbox, "run", forbidden)
    env = {"name": "code", "rounds": 1, "style": "calls"}
    rest = {"seats": {"coder": "bot:expert", "tester": "player"}, "eval": {"opponents": ["team"], "success": "solved"}}
    play(tmp_path, {**SHORT, "env": env, **rest})
    (row,) = rows(tmp_path)
    assert (row["episodes"], row["episodes_failed"]) == (4, 0)
    for record in read(tmp_path / "episodes.jsonl"):
        earned = {r.name: r.value for r in record.episode.rewards if r.role == "coder"}
        assert earned["pass"] == pytest.approx(0.8), record.episode.id


@pytest.mark.slow
def test_an_outside_program_runs_on_a_worker_and_asks_its_policies(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is a command. It asks the server that OPENAI_BASE_URL names, and earns the length of its result."""
    monkeypatch.setattr(ProcessRun, "__init__", forbidden)
    command = [sys.executable, str(TEAMS / "commands.py")]
    env = {"name": "program", "command": command, "reward": "commands:length", "roles": ["planner"]}
    rest = {"seats": {"planner": "player"}, "eval": {"opponents": ["team"], "success": "score"}}
    play(tmp_path, {**SHORT, "env": env, **rest})
    (row,) = rows(tmp_path)
    assert (row["episodes"], row["episodes_failed"]) == (4, 0)
    for record in read(tmp_path / "episodes.jsonl"):
        (turn,) = record.episode.turns
        assert turn.policy == "player" and turn.last.action
        result = {"said": turn.text}
        assert [(r.name, r.value) for r in record.episode.rewards] == [("score", float(len(str(result))))]

"""Programs that a model wrote, programs that ask models, and judges run where episodes are played: on a rollout
worker."""

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
from interplay.rollout.arbiters import PolicyArbiter
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


@pytest.mark.slow
def test_processes_of_programs_are_kept_on_each_of_two_workers(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reward of an episode is the number of episodes that its process has played."""
    monkeypatch.setattr(ProcessRun, "__init__", forbidden)
    env = {"name": "program", "function": "kept:counts", "reward": "kept:itself", "roles": ["planner"]}
    env["program"] = {"keep": 8}
    rest = {"seats": {"planner": "player"}, "eval": {"opponents": ["team"], "success": "score"}, "train": {"steps": 2}}
    play(tmp_path, {**SHORT, "env": env, **rest, "cluster": {"rollout_workers": 2, "worker_cpus": 0.0}})
    assert [(row["episodes"], row["episodes_failed"]) for row in rows(tmp_path)] == [(4, 0)] * 2
    earned = [reward.value for record in read(tmp_path / "episodes.jsonl") for reward in record.episode.rewards]
    assert len(earned) == 8 and max(value or 0.0 for value in earned[4:]) > 1.0


@pytest.mark.slow
def test_a_judge_that_is_a_policy_is_asked_on_a_worker(
    tmp_path: Path, nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compares the two episodes of each task, in both orders. What one earns, the other loses."""
    monkeypatch.setattr(PolicyArbiter, "_ask", forbidden)
    policies = {**SHORT["policies"], "critic": {"base": "tiny-16x2", "trainable": False}}
    judges = {"taste": {"kind": "pairwise", "who": "critic", "against": "group"}}
    rest = {"seats": "player", "eval": {"opponents": []}, "sampling": {"max_tokens": 2, "legal": True}}
    play(tmp_path, {**SHORT, "env": RECIPE["env"], "policies": policies, "judges": judges, **rest})
    (row,) = rows(tmp_path)
    assert (row["episodes"], row["episodes_failed"], row["judge/taste/coverage"]) == (4, 0, 1.0)
    earned: dict[str, list[float]] = {}
    for record in read(tmp_path / "episodes.jsonl"):
        episode = record.episode
        earned.setdefault(episode.task.id, []).extend(
            r.value for r in episode.rewards if r.name == "taste" and r.role == "X" and r.value is not None
        )
        assert all(turn.policy == "critic" for turn in episode.judged)
    assert [len(both) for both in earned.values()] == [2, 2]
    assert all(sum(both) == pytest.approx(0) for both in earned.values())
    assert row["judge_tokens"] > 0

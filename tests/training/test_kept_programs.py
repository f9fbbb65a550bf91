"""Processes that run several episodes (`env.program.keep`) change nothing of a run: trees, judges, resume."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, rows, train
from safetensors.torch import load_file

from interplay.envs.programs import counts, process
from interplay.rollout.records import read

TEAMS = Path(__file__).parents[1] / "envs" / "programs" / "teams"
BASE: dict[str, Any] = {
    "name": "kept",
    "device": "cpu",
    "policies": {"plans": {"base": "tiny-16x1"}, "solves": {"base": "tiny-16x1"}},
    "seats": {"planner": "plans", "solver": "solves"},
    "sampling": {"max_tokens": 4},
    "rollout": {"tasks": 2},
    "train": {"steps": 2, "lr": 1e-2},
    "eval": {"opponents": ["team"], "success": "score", "before": False, "after": False},
    "records": {"tensorboard": "off"},
    "checkpoint": {"every": 1, "keep": 100},
}
LETTERS = {"kind": "function", "who": "kept:letters", "scope": "reply"}
GROUPS = {
    "algorithm": {"name": "grpo", "group": 3},
    "judges": {
        "letters": LETTERS,
        "taste": {"kind": "pairwise", "who": "critic", "against": "group", "scope": "episode"},
    },
}
TREES = {
    "algorithm": {"name": "at_grpo", "candidates": 2, "continuation": "playout"},
    "judges": {"letters": LETTERS},
    "rollout": {"tasks": 1},
}


@pytest.fixture(autouse=True)
def teams_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEAMS))
    counts.take()  # of other tests


def kept(rest: Mapping[str, Any], keep: int) -> dict[str, Any]:
    env = {"name": "program", "function": "kept:plans_and_solves", "reward": "commands:length"}
    data = {**BASE, **rest, "env": {**env, "roles": ["planner", "solver"], "program": {"keep": keep}}}
    if "taste" in rest["judges"]:
        data["policies"] = {**data["policies"], "critic": {"base": "tiny-16x1", "trainable": False}}
    return data


def assert_same(one: Path, two: Path) -> None:
    """Metrics, weights, and everything of the episodes that training reads."""
    assert rows(one) == rows(two)
    last = max(folder.name for folder in (one / "checkpoints").iterdir())
    for name in BASE["policies"]:
        a, b = (
            load_file(next((f / "checkpoints" / last / "policies" / name).glob("*.safetensors"))) for f in (one, two)
        )
        assert all(torch.equal(a[key], b[key]) for key in a)
    found = [
        [
            (t.id, t.keys, t.policy, t.text, [(s.prompt, s.action, s.logprobs) for s in t.samples])
            for record in read(folder / "episodes.jsonl")
            for t in record.episode.turns
        ]
        for folder in (one, two)
    ]
    assert found[0] == found[1] and {turn[2] for turn in found[0]} == set(BASE["policies"])


@pytest.mark.parametrize("rest", [GROUPS, TREES], ids=["groups", "trees"])
def test_a_run_is_the_same_with_processes_that_are_kept(rest: Mapping[str, Any], tmp_path: Path) -> None:
    """Two policies in one program, judges of replies and of episodes, and candidates at every call by replay."""
    for keep in (1, 50):
        train(tmp_path / str(keep), kept(rest, keep))
    (worker,) = (worker for (_, options, _), worker in process._workers.items() if '"keep":50' in options)
    # How many processes there are depends on which runs overlap, and the last one to start may have had one episode.
    played = sum(50 - place.left for place in worker._waiting)
    assert played > len(worker._waiting) > 0, "processes had several episodes"
    assert_same(tmp_path / "1", tmp_path / "50")
    assert [row["episodes_failed"] for row in rows(tmp_path / "50")] == [0, 0]
    for record in read(tmp_path / "50" / "episodes.jsonl"):
        assert {reward.name for reward in record.episode.rewards} == {"score", *rest["judges"]}


def test_a_run_with_processes_that_are_kept_resumes_bit_identically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill, and after a signal that comes while episodes of the second step are played."""
    whole, cut, data = tmp_path / "whole", tmp_path / "cut", kept(GROUPS, 3)
    train(whole, data)
    with pytest.raises(Killed):
        train(cut, data, observer=killed_at(1))
    answer, answered = process.ProcessRun.answer, []

    def stops(run: process.ProcessRun, *given: Any) -> None:
        answered.append(run)
        if len(answered) == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        answer(run, *given)

    with monkeypatch.context() as patch:
        patch.setattr(process.ProcessRun, "answer", stops)
        train(cut, data)
    assert len(answered) >= 10 and len(rows(cut)) == 1, "no step was completed after the kill"
    train(cut, data)
    assert_same(whole, cut)

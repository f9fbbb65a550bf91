"""Dynamic sampling: tasks that teach nothing are replaced until the batch is full, and still count in the metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs import Killed, killed_at, rows, train

from interplay.algorithms.dapo import DAPO
from interplay.errors import ConfigError, GuardError
from interplay.rollout.runner import Runner, Seated
from interplay.types import Episode, Task, seed_of

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "matrix", "game": "stag_hunt"},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "dapo", "group": 2},
    "sampling": {"max_tokens": 4, "legal": True},
    "rollout": {"tasks": 6},
    "train": {"steps": 3, "lr": 1e-2},
    "records": {"tensorboard": "off"},
}


def consumed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "stream.jsonl").read_text().splitlines()]


def groups(folder: Path) -> list[int]:
    """The number of tasks played in each step."""
    found = consumed(folder)
    return [sum(row["step"] == step for row in found) for step in (1, 2, 3)]


def test_dapo_samples_until_its_batch_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second task teaches nothing: 6 useful tasks come with 6 useless ones. All episodes count in the metrics, so
    that `reward` is what the policy earns on all tasks and not only where it learns."""
    seen: dict[str, bool] = {}

    def every_second(self: DAPO, episodes: list[Episode]) -> bool:
        return seen.setdefault(episodes[0].task.id, int(episodes[0].task.id.rsplit("-", 1)[1]) % 2 == 0)

    monkeypatch.setattr(DAPO, "teaches", every_second)
    train(tmp_path, RECIPE)
    for step, row in enumerate(rows(tmp_path)):
        played = [r for r in consumed(tmp_path) if r["step"] == step + 1]
        assert sum(seen[r["task"]] for r in played) == 6
        assert row["episodes"] == 2 * len(played)
    assert len({r["task"] for r in consumed(tmp_path)}) == len(consumed(tmp_path)) == len(seen)


def test_the_number_of_further_tasks_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing ever teaches, a step ends after `resample` additional batches; with 0 it plays only its own batch."""
    monkeypatch.setattr(DAPO, "teaches", lambda self, episodes: False)
    train(tmp_path / "two", {**RECIPE, "algorithm": {**RECIPE["algorithm"], "resample": 2}})
    train(tmp_path / "none", {**RECIPE, "algorithm": {**RECIPE["algorithm"], "resample": 0}})
    assert groups(tmp_path / "two") == [18, 18, 18]
    assert groups(tmp_path / "none") == [6, 6, 6]


@pytest.mark.parametrize("kind", ["none", "self_paced", "replay"])
def test_a_killed_run_resamples_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The replacements are part of the checkpoint. They are tasks of the next step, which a curriculum has chosen
    before it learned from this one."""
    monkeypatch.setattr(DAPO, "teaches", lambda self, episodes: seed_of(episodes[0].task.id) % 3 > 0)
    easy, hard = {"rounds": 1}, {"rounds": 3}
    curriculum = {"kind": kind, "success": "payoff", "easy": easy, "hard": hard, "rate": 1.0, "replay": 0.8}
    data = RECIPE if kind == "none" else {**RECIPE, "curriculum": curriculum}
    train(tmp_path / "whole", data)
    assert sum(groups(tmp_path / "whole")) > 18, "something was replaced"
    with pytest.raises(Killed):
        train(tmp_path / "cut", data, "checkpoint.every=1", observer=killed_at(2))
    papers = json.loads((tmp_path / "cut/checkpoints/step-000002/trainer.json").read_text())
    assert any(origin["at"] < 2 for origin in papers["stream"]["origins"].values()), "the next step has begun"
    train(tmp_path / "cut", data)
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    assert consumed(tmp_path / "cut") == consumed(tmp_path / "whole")


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int, int], bool]) -> None:
    """Make episodes fail, by the number of their task and their own number in its group."""
    played = Runner.episode

    async def episode(self: Runner, task: Task, replica: int, seated: Seated) -> Episode:
        found = await played(self, task, replica, seated)
        number = int(task.id.rsplit("-", 1)[1])
        return replace(found, error="ToolError: planted") if fails(number, replica) else found

    monkeypatch.setattr(Runner, "episode", episode)


GRPO = {**RECIPE, "algorithm": {"name": "grpo", "group": 2}}


def test_a_group_with_too_few_good_episodes_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two episodes of every third task fails."""
    failing(monkeypatch, lambda number, replica: number % 3 == 0 and replica == 0)
    train(tmp_path / "partial", GRPO)
    assert [(row["episodes"], row["episodes_failed"]) for row in rows(tmp_path / "partial")] == [(10, 2)] * 3
    train(tmp_path / "whole", GRPO, "stream.min_group=2")
    found = rows(tmp_path / "whole")
    assert [(row["episodes"], row["episodes_failed"]) for row in found] == [(12, 0)] * 3
    assert all(row["stream/replaced"] >= 2 for row in found)
    with pytest.raises(Killed):
        train(tmp_path / "cut", GRPO, "stream.min_group=2", observer=killed_at(2))
    train(tmp_path / "cut", GRPO, "stream.min_group=2")
    assert rows(tmp_path / "cut") == found


def test_a_run_in_which_every_group_is_partial_goes_on_and_one_in_which_all_episodes_fail_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, lambda number, replica: replica == 0)
    train(tmp_path / "half", GRPO, "stream.min_group=2", "train.steps=1")
    (row,) = rows(tmp_path / "half")
    assert (row["episodes"], row["episodes_failed"], row["stream/replaced"]) == (6, 6, 6)
    failing(monkeypatch, lambda number, replica: True)
    with pytest.raises(GuardError, match="all 12 episodes of step 1 failed"):
        train(tmp_path / "none", GRPO, "stream.min_group=2")


def test_a_group_cannot_be_larger_than_what_is_played(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stream.min_group is 3, but grpo plays 2 episodes of each task"):
        train(tmp_path, GRPO, "stream.min_group=3")

"""The league in real runs: exact resume, rollback, new lives, bounded memory and disk."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, rows, train
from safetensors.torch import load_file

from interplay.errors import CheckpointError, GuardError
from interplay.rollout import records
from interplay.types import Snapshot

RPS = {"name": "matrix", "game": "rock_paper_scissors"}
ADAPTED = {"base": "tiny-16x1", "adapter": {"rank": 2}}
BASE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": RPS,
    "policies": {"main": {"base": "tiny-16x1"}, "rival": {"base": "tiny-16x1", "lr": 3e-2}},
    "seats": "main",
    "matchups": [
        {"share": 0.4, "one": "main", "others": "@league"},
        {"share": 0.4, "one": "rival", "others": "main@now"},
    ],
    "league": {"every": 1, "capacity": 3, "lineup": 2, "exploiters": {"rival": {"games": 4, "patience": 2}}},
    "algorithm": {"name": "grpo", "group": 4},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 8},
    "train": {"steps": 4, "lr": 1e-2},
    "checkpoint": {"every": 2},
    "records": {"tensorboard": "off"},
}
ALARM = {"panel": ["bot:random", "main@start"], "games": 4, "drop": 0.9}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {f"{p.name}/{k}": v for p in folder.rglob("*.safetensors") for k, v in load_file(p).items()}


def same(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(v, two[k]) for k, v in one.items())


@pytest.mark.parametrize("adapters", [False, True], ids=["full weights", "adapters"])
def test_a_killed_league_resumes_bit_identically(tmp_path: Path, adapters: bool) -> None:
    """Snapshots, payoffs, lives, ratings and a refreshed reference: after a kill, all are as in an uninterrupted
    run."""
    data = {**BASE, "algorithm": {**BASE["algorithm"], "kl": 0.1, "kl_refresh": 3}}
    data["league"] = {**BASE["league"], "alarm": ALARM}
    if adapters:
        data["policies"] = {"main": ADAPTED, "rival": {**ADAPTED, "lr": 3e-2}}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    trained = train(whole, data, "train.steps=5")
    with pytest.raises(Killed):
        train(cut, data, "train.steps=5", observer=killed_at(3))
    train(cut, data, "train.steps=5")
    assert rows(whole) == rows(cut)
    papers = [json.loads((f / "checkpoints/step-000005/trainer.json").read_text()) for f in (whole, cut)]
    for key in ("league", "references", "versions"):
        assert papers[0][key] == papers[1][key]
    assert papers[0]["references"]["main"] == "main@3"
    assert same(weights(whole / "checkpoints/step-000005"), weights(cut / "checkpoints/step-000005"))
    names = {p.name for p in (whole / "snapshots").iterdir()}
    assert names == {p.name for p in (cut / "snapshots").iterdir()}
    for name in names:
        assert same(weights(whole / "snapshots" / name), weights(cut / "snapshots" / name)), name
    assert not same(weights(whole / "snapshots/main@start"), weights(whole / "snapshots/main@5"))
    assert trained.league is not None and trained.league.lives["rival"].number > 1


def test_opponents_are_snapshots_and_only_learners_learn(tmp_path: Path) -> None:
    train(tmp_path, BASE, "train.steps=3", "checkpoint.keep=9")
    played = {frozenset(map(str, r.episode.seats.values())) for r in records.read(tmp_path / "episodes.jsonl")}
    assert frozenset({"main"}) in played and frozenset({"rival", "main@now"}) in played
    assert any(name.startswith(("main@", "rival@")) and name != "main@now" for seats in played for name in seats)
    last = rows(tmp_path)[-1]
    assert any(key.startswith("league/chance/main/") for key in last)
    assert any(key.startswith("league/score/main/") for key in last)
    assert not any(key.startswith(("main@", "rival@")) for key in last), "a snapshot takes no step"
    start = weights(tmp_path / "checkpoints/step-000000/policies/main")
    assert same(start, weights(tmp_path / "snapshots/main@start"))
    assert not same(start, weights(tmp_path / "checkpoints/step-000003/policies/main"))


def test_memory_and_disk_are_bounded(tmp_path: Path) -> None:
    """Three snapshots per policy in the league; on disk also those that the two kept checkpoints may need; in memory at
    most one line-up."""
    trainer = train(tmp_path, BASE, "train.steps=10", "checkpoint.every=1", "rollout.tasks=4")
    assert trainer.league is not None
    assert all(len(mine) <= 3 for mine in trainer.league.snapshots.values())
    assert len(list((tmp_path / "snapshots").iterdir())) <= 2 * 3 + 2
    models = {id(m.loaded.model) for m in trainer.team.members.values()}
    assert len(models | {id(m.loaded.model) for m in trainer.team.pool._idle.values()}) <= 2 + 2


def test_a_collapse_goes_back_to_the_last_good_snapshot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A limit on the entropy that no policy can reach gives a collapse in every step: the weights stay those of the
    start."""
    alarm = {**ALARM, "entropy": 99.0, "limit": 2}
    data = {**BASE, "league": {**BASE["league"], "every": 9, "alarm": alarm}}
    with caplog.at_level(logging.WARNING, logger="interplay"):
        trainer = train(tmp_path, data, "train.steps=2", "checkpoint.every=1")
    assert "goes back to main@start" in caplog.text and "entropy" in caplog.text
    assert same(weights(tmp_path / "checkpoints/step-000002/policies/main"), weights(tmp_path / "snapshots/main@start"))
    assert not trainer.learners["main"].optimizer.state, "a clean optimiser"
    assert rows(tmp_path)[-1]["league/alarm/main"] == 1.0
    with pytest.raises(GuardError, match=r"league\.alarm\.limit"):
        train(tmp_path, data, "train.steps=3", "checkpoint.every=1")


def test_a_falling_rating_is_an_alarm_and_such_a_snapshot_never_enters_the_league(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The panel is really played; then its ratings are set by the test, so that the third snapshot is a fall."""
    ratings = iter([0.5, 0.6, 0.7, 0.2])  # the start, then steps 1 to 3
    monkeypatch.setattr("interplay.rollout.league.League.rating", lambda self, scores: next(ratings))
    data = {**BASE, "league": {**BASE["league"], "alarm": {**ALARM, "drop": 0.3}}}
    trainer = train(tmp_path, data, "train.steps=3", "checkpoint.every=1")
    assert trainer.league is not None
    assert trainer.league.snapshots["main"] == [Snapshot("main", at) for at in ("start", "1", "2")]
    assert same(weights(tmp_path / "checkpoints/step-000003/policies/main"), weights(tmp_path / "snapshots/main@2"))
    last = rows(tmp_path)[-1]
    assert last["league/rating/main"] == 0.2 and last["league/alarm/main"] == 1.0
    assert {"league/panel/main/bot:random", "league/panel/main/main@start"} <= last.keys()


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    train(tmp_path, BASE, "train.steps=2")
    for file in (tmp_path / "snapshots").glob("*/model.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match="damaged"):
        train(tmp_path, BASE, "train.steps=4")


def test_a_run_without_a_league_does_not_grow_one(tmp_path: Path) -> None:
    plain = {**BASE, "matchups": [{"share": 0.5, "one": "rival", "others": "main"}], "league": None}
    train(tmp_path, plain, "train.steps=2")
    with pytest.raises(CheckpointError, match="no league"):
        train(tmp_path, BASE, "train.steps=4")

"""Some settings of a run may change when it is resumed; changing the others is refused with the name of the key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interplay.config import parse
from interplay.errors import CheckpointError
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer

TINY = {"base": "tiny-16x1"}
BASE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "matrix", "actions": [["heads", "tails"]] * 2, "payoff": [[[0, 0], [1, 1]], [[1, 1], [0, 0]]]},
    "policies": {"player": {**TINY, "per": "role", "adapter": {"rank": 2}}},
    "seats": "player",
    "algorithm": {"name": "ppo", "replicas": 4, "critic": {"lr": 1e-3}},
    "sampling": {"max_tokens": 4, "legal": True},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "lr": 1e-2},
    "records": {"tensorboard": "off"},
}


def train(folder: Path, data: Mapping[str, Any], *overrides: str) -> Trainer:
    trainer = Trainer(resolve(parse(data, overrides)), folder)
    try:
        trainer.train()
    finally:
        trainer.close()
    return trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    train(folder, BASE)
    return folder


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["seed=1"], "seed is 1"),
        (["dtype=bfloat16"], "dtype is 'bfloat16'"),
        (["algorithm={name = 'rae'}"], "algorithm.name is 'rae'"),
        (["policies.player.base=tiny-32x1"], "policies.player-p0.base is 'tiny-32x1'"),
        (["policies.player.adapter.rank=3"], "policies.player-p0.adapter is {'rank': 3"),
        (["policies={player = {base = 'tiny-16x1', per = 'role'}}"], "policies.player-p0.adapter is None"),
        (["policies.player.optimizer=adamw_8bit"], "policies.player-p0.optimizer is 'adamw_8bit'"),
        (["algorithm.critic.adapter={rank = 2}"], "algorithm.critic.adapter is {'rank': 2"),
        (
            ["policies.player.per=team"],
            "trains the policies ['player-p0', 'player-p1'], but this recipe trains ['player']",
        ),
    ],
)
def test_what_a_run_is_made_of_cannot_change(run: Path, tmp_path: Path, overrides: list[str], key: str) -> None:
    """A refusal has no effect: the next try, with the old recipe, continues the run."""
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(CheckpointError) as caught:
        train(tmp_path / "run", BASE, "train.steps=2", *overrides)
    assert key in str(caught.value) and "\n" not in str(caught.value)
    assert (tmp_path / "run" / "run.json").read_bytes() == (run / "run.json").read_bytes()


def test_a_start_that_was_never_kept_is_refused_and_the_run_keeps_its_recipe(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"this run has no snapshot 'player-p0@start'.*algorithm\.kl.*start a new run"
    ):
        train(tmp_path / "run", BASE, "train.steps=2", "algorithm.kl=0.1")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["algorithm"].get("kl", 0.0) == 0.0
    assert train(tmp_path / "run", BASE, "train.steps=2").step_index == 2


def test_what_may_change_does(run: Path, tmp_path: Path) -> None:
    """Rates, decay and betas are those of the recipe, not those stored with the moments in the checkpoint."""
    shutil.copytree(run, tmp_path / "run")
    changed = ("train.lr=0.5", "train.weight_decay=0.25", "train.beta2=0.5", "algorithm.critic.lr=0.125")
    trainer = train(tmp_path / "run", BASE, "train.steps=2", *changed)
    for learner in trainer.learners.values():
        (group,) = learner.optimizer.param_groups
        assert (group["lr"], group["weight_decay"], group["betas"]) == (0.5, 0.25, (0.9, 0.5))
    for critic in trainer.critics.values():
        assert critic.optimizer.param_groups[0]["lr"] == 0.125
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["train"]["lr"] == 0.5

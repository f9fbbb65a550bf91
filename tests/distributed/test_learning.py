"""Runs over several processes learn: the reward rises to what an untrained model does not reach."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console
from runs import make, rows

from interplay.cli.session import Session
from interplay.config import parse
from interplay.distributed.cluster import RolloutFleet
from interplay.distributed.rank_actors import RankActors
from interplay.rollout.resolve import resolve
from interplay.training.rank_group import ChildRanks
from interplay.training.sharded import ShardedLearner

WORDS = ["a", "b", "c", "d"]
# Each of two players says one of four words, and earns 1 for the last one. An untrained model earns a quarter.
RECIPE: dict[str, Any] = {
    "name": "learning",
    "env": {
        "name": "matrix",
        "actions": [WORDS, WORDS],
        "payoff": [[[float(word == WORDS[-1]) for word in both] for both in ((x, y) for y in WORDS)] for x in WORDS],
    },
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 4},
    "sampling": {"max_tokens": 4, "legal": True},
    "rollout": {"tasks": 8},
    "train": {"steps": 12, "lr": 1e-2},
    "eval": {"opponents": ["bot:random"], "before": False, "after": False},
    "records": {"tensorboard": "off"},
}
TWO_RANKS = ("train.shard=fsdp", "cluster.learners=2")
TWO_WORKERS = ("cluster.rollout_workers=2", "cluster.worker_cpus=0")


def assert_learned(folder: Path) -> None:
    found = [row["reward"] for row in rows(folder)]
    assert len(found) == 12 and found[0] < 0.5 and fmean(found[-3:]) > 0.8, found


class Looking(Session):
    """Notes the kind and the number of the learner's ranks at every step, and the number of its rollout workers."""

    def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        super()._stepped(step, metrics)
        learner, fleet = self.trainer.learners["player"], self.trainer.fleet
        assert isinstance(learner, ShardedLearner) and (fleet is None or isinstance(fleet, RolloutFleet))
        workers = 0 if fleet is None else len(fleet.workers)
        self.seen = (type(learner.group._processes), len(learner.group.pids), workers)


def run(folder: Path, *overrides: str) -> Looking:
    session = Looking(Console(file=io.StringIO()), resolve(parse(RECIPE, overrides)), folder)
    assert session.run()
    return session


@pytest.mark.slow
def test_a_learner_on_two_ranks_learns(tmp_path: Path) -> None:
    """FSDP2 over gloo; the ranks are child processes."""
    assert run(tmp_path, *TWO_RANKS).seen == (ChildRanks, 2, 0)
    assert_learned(tmp_path)


@pytest.mark.slow
def test_two_ranks_and_two_workers_on_two_nodes_learn(tmp_path: Path, nodes: Any) -> None:
    """Ranks of FSDP2 and rollout workers are actors of one Ray cluster. Each node has room for one rank."""
    assert run(tmp_path, *TWO_RANKS, *TWO_WORKERS).seen == (RankActors, 2, 2)
    assert_learned(tmp_path)


@pytest.mark.slow
def test_two_workers_on_a_cluster_that_the_command_starts_learn(tmp_path: Path) -> None:
    make(tmp_path, RECIPE, *TWO_WORKERS).close()  # writes run.json, from which the command reads the recipe
    program = [sys.executable, "-c", "from interplay.cli.main import main; main()"]
    subprocess.run([*program, "train", str(tmp_path), "--resume"], check=True, stdout=subprocess.DEVNULL, timeout=1200)
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        assert all(0 <= json.loads(line)[f"cluster/idle/worker_{i}"] < 1 for i in (0, 1))  # both have played
    assert_learned(tmp_path)

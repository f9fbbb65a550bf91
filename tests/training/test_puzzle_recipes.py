"""The puzzles' recipes run unchanged except for their size: two steps on a CPU, with their curriculum."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interplay.config import load
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer
from interplay.types import Policy

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = (
    "device=cpu", "warmstart.episodes=8", "rollout.tasks=3", "train.steps=2", "train.minibatches=1",
    "algorithm.candidates=2", "records.tensorboard=off", "env.turns=4",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "logged"),
    [("plan_path", "curriculum/difficulty"), ("sudoku", "curriculum/stage"), ("sokoban", "curriculum/replayed")],
)
def test_two_steps_of_a_puzzle_recipe(tmp_path: Path, name: str, logged: str) -> None:
    """Planner and actor both play and both are trained; every reward component is logged by name."""
    recipe = load(RECIPES / name / "at_grpo.toml")
    small = [f"policies.{policy}.base=tiny-16x1" for policy in recipe.policies]
    trainer = Trainer(resolve(load(RECIPES / name / "at_grpo.toml", [*SMALL, *small])), tmp_path)
    try:
        trainer.train()
    finally:
        trainer.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    assert {"reward/solved/team", logged, "curriculum/success"} <= rows[-1].keys()
    episode = json.loads((tmp_path / "episodes.jsonl").read_text().splitlines()[0])["episode"]
    assert "planner" in {turn["keys"]["role"] for turn in episode["turns"]}


def test_one_agent_alone_is_one_line_away(tmp_path: Path) -> None:
    """As the recipe's first lines say: the same puzzle without a planner."""
    single = ["env.team=single", "seats=player", "policies.player.base=tiny-16x1"]
    plan = resolve(load(RECIPES / "plan_path" / "at_grpo.toml", [*SMALL, *single]))
    assert plan.roles == ("actor",) and plan.seats == {"actor": Policy("player")}

"""The budget of tokens: every token that an engine samples for training is counted, and the run stops at the budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import train

GAME: dict[str, Any] = {
    "name": "budget",
    "device": "cpu",
    "env": {"name": "tictactoe", "line": 2},
    "policies": {"player": {"base": "tiny-32x1"}},
    "seats": "player",
    "algorithm": {"name": "at_grpo", "candidates": 3, "continuation": "playout", "keep": "uniform"},
    "sampling": {"max_tokens": 3, "legal": True},
    "rollout": {"tasks": 3},
    "train": {"steps": 3},
    "records": {"tensorboard": "off", "episodes_per_step": 0},
    "stream": {"probe": 0},
}


@pytest.mark.parametrize("change", ["algorithm.playouts=1", "algorithm.playouts=2", "algorithm.keep=greedy"])
def test_rejected_candidates_and_playouts_count_exactly_as_the_engine_sampled_them(tmp_path: Path, change: str) -> None:
    trainer = train(tmp_path, GAME, change)
    assert trainer.tokens["player"] == sum(e.stats().sampled_tokens for e in trainer.team.engines) > 0


def test_a_run_stops_after_the_step_in_which_its_budget_is_used_up(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", GAME)
    first = train(tmp_path / "first", GAME, "train.steps=1").tokens["player"]
    stopped = train(tmp_path / "stopped", GAME, f"train.budget_tokens={first + 1}")
    assert stopped.step_index == 2 and first < stopped.tokens["player"] < whole.tokens["player"]

"""The metrics of a step about its turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runs import rows, train

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "matrix", "game": "stag_hunt"},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 1},
    "rollout": {"tasks": 2},
    "train": {"steps": 1},
    "records": {"tensorboard": "off"},
}


def test_a_reply_that_was_cut_off_and_refused_is_both(tmp_path: Path) -> None:
    """An untrained model samples one token, which is never a word of the game and almost never the end."""
    train(tmp_path, RECIPE)
    (row,) = rows(tmp_path)
    assert row["turns_illegal"] == 1.0 and row["turns_cut"] > 0.5

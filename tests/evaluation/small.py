"""The smallest recipe that can be measured: one policy, both seats of tic-tac-toe."""

from __future__ import annotations

from typing import Any

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe"},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo"},
    "sampling": {"max_tokens": 2},
}

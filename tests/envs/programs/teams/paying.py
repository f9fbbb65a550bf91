"""A program as the documentation shows it: tools that are recorded, and the reward, in one module."""

from __future__ import annotations

from typing import Any

from commands import talk
from interplay_effects import recorded


@recorded
def pay(amount: str) -> str:
    return f"receipt for {amount}"


def run(row: dict[str, Any]) -> str:
    return pay(talk())


def reward(row: Any, result: str) -> float:
    return float(len(result))

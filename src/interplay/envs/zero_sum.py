"""Zero-sum games for two players: one player's gain is the other's loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from interplay.types import Level, Rewards, Role


def gain(roles: Sequence[Role], rewards: Rewards, refuse: Callable[[str], NoReturn]) -> float:
    """The gain of the first of `roles`. If the rewards do not sum to zero, `refuse` is called with the reason."""
    gains = dict.fromkeys(roles, 0.0)
    for r in rewards:
        if r.level is Level.AGENT and r.role is not None and r.value is not None:
            gains[r.role] += r.value
    if not math.isclose(sum(gains.values()), 0.0, abs_tol=1e-9):
        refuse(f"is not zero-sum (it gave {gains}); expected rewards that cancel")
    return gains[roles[0]]

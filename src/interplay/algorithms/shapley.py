"""Shapley credit: what an action adds to every part of the team, on average (Shapley, 1953; SQDDPG, 1907.05707).

v(S) is the return when the roles in S do what they did and the others say `default`; φ_i averages v(S ∪ i) − v(S) over
all orders in which the team can be put together. Exact to four roles that act at once, sampled orders beyond; the φ of
a decision sum to v(N) − v(∅). A difference reward looks only at the whole team: where either of two agents is enough,
each one's difference is 0, while their Shapley values share the credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Joint, register
from interplay.algorithms.difference import Difference
from interplay.types import Turn


@register("shapley")
class Shapley(Difference):
    joint: ClassVar[Joint] = "coalitions"

    def share(self, turn: Turn, worth: Mapping[str, float]) -> float:
        return credit.shapley(worth, credit.team(turn))[turn.role]

"""Shapley credit: what an action adds to every part of the team, on average (Shapley, 1953; SQDDPG, 1907.05707).

v(S) is the return when the roles in S do what they did and the others say `default`; φ_i averages v(S ∪ i) − v(S) over
all orders in which the team can be put together. Exact to four roles that act at once; beyond, orders are sampled anew
for every decision (`credit.orders` states the error). The φ of a decision always sum to v(N) − v(∅). A difference
reward looks only at the whole team: where either of two agents is enough, each one's difference is 0, while their
Shapley values share the credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Joint, register
from interplay.algorithms.difference import Difference
from interplay.types import Episode, Turn


@register("shapley")
class Shapley(Difference):
    joint: ClassVar[Joint] = "coalitions"

    def share(self, episode: Episode, turn: Turn, worth: Mapping[str, float]) -> float:
        seed = credit.order_seed(episode.task, episode.id, turn.decision)
        return credit.shapley(worth, credit.team(turn), seed)[turn.role]

"""Shapley credit: what an action adds to a coalition, averaged over coalitions (Shapley, 1953; SQDDPG, 1907.05707).

v(S) is the return if the roles in S do what they did and the others say `default`. φ_i is the mean of v(S ∪ i) − v(S)
over all orders in which the roles can join the team. It is exact for up to four roles that act at once. With more
roles, random orders are drawn for every decision (`credit.orders` states the error). The φ of a decision always sum to
v(N) − v(∅). A difference reward only compares with the whole team: if one of two agents is enough for success, the
difference reward of both is 0, while Shapley values divide the credit between them.
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

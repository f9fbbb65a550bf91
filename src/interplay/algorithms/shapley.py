"""Shapley credit: what an action adds to every part of the team, on average (Shapley, 1953; SQDDPG, 1907.05707).

v(S) is the return when the roles in S do what they did and the others say `default`; φ_i averages v(S ∪ i) − v(S) over
all orders in which the team can be put together. Exact to four roles that act at once, sampled orders beyond; the φ of
a decision sum to v(N) − v(∅). A difference reward looks only at the whole team: where either of two agents is enough,
each one's difference is 0, while their Shapley values share the credit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Tree, TreeSettings, register
from interplay.types import Episode, Turn


class ShapleySettings(TreeSettings):
    default: str = Field("", description="what an agent that is left out says")


@register("shapley")
class Shapley(Algorithm):
    Settings = ShapleySettings
    settings: ShapleySettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(1, s.continuation, s.playouts, "first", joint="coalitions", default=s.default)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        turns = credit.candidates(episodes)
        for turn in turns:
            turn.advantage = self._share(turn)
        return credit.summary(turns)

    def _share(self, turn: Turn) -> float:
        worth = {who: credit.mix(rewards, turn.role, self.reward) for who, rewards in turn.coalitions.items()}
        return credit.shapley(worth, credit.team(turn))[turn.role]

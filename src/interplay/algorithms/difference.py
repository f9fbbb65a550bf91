"""Difference rewards: what the team would have lost without this action (Wolpert & Tumer, 2002).

A_i = R(a) − R(a with agent i saying `default`), on a fork with the same randomness. What the others did cancels: an
agent is neither paid for a teammate's success nor blamed for its failure. Unlike COMA's mean over the agent's own
policy, the default is one fixed action (silence, if none is given), so a policy that always does what is good keeps
its credit. With agent i's own reward in place of the team's, it is what i's action was worth to i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Tree, TreeSettings, register
from interplay.types import Episode, Turn


class DifferenceSettings(TreeSettings):
    default: str = Field("", description="what an agent that is left out says")


@register("difference")
class Difference(Algorithm):
    Settings = DifferenceSettings
    settings: DifferenceSettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(1, s.continuation, s.playouts, "first", joint="without", default=s.default)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        turns = credit.candidates(episodes)
        for turn in turns:
            turn.advantage = credit.candidate_return(turn, self.reward) - self._without(turn)
        return credit.summary(turns)

    def _without(self, turn: Turn) -> float:
        others = credit.coalition(role for role in credit.team(turn) if role != turn.role)
        return credit.mix(turn.coalitions[others], turn.role, self.reward)

"""Difference rewards: what the team would have lost without this action (Wolpert & Tumer, 2002).

A_i = R(a) − R(a with agent i saying `default`), on a fork with the same randomness. What the other agents contributed
cancels, so an agent is neither rewarded for a teammate's success nor blamed for a teammate's failure. COMA compares
with the mean over the agent's own policy. Here the default is one fixed action (an empty reply, if none is set), so a
policy that always takes the good action keeps its credit. If agents have rewards of their own, A_i is computed from
agent i's own reward: it is what the action was worth to agent i.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Joint, Tree, TreeSettings, register
from interplay.types import Credit, Episode, Turn


class DefaultSettings(TreeSettings):
    default: str = Field("", description="the reply of an agent that is left out")


@register("difference")
class Difference(Algorithm):
    Settings = DefaultSettings
    settings: DefaultSettings
    joint: ClassVar[Joint] = "without"

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(1, s.continuation, s.playouts, "first", joint=self.joint, default=s.default)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        for episode in episodes:
            for turn in credit.candidates([episode]):
                assert turn.outlook is not None
                found = turn.outlook.coalitions
                worth = {who: credit.mix(rewards, turn.role, self.reward) for who, rewards in found.items()}
                given.give(turn, self.share(episode, turn, worth))
        return credit.summary(credit.candidates(episodes), given)

    def share(self, episode: Episode, turn: Turn, worth: Mapping[str, float]) -> float:
        """A role's credit, computed from what coalitions with and without this role earned."""
        team = credit.team(turn)
        return worth[credit.coalition(team)] - worth[credit.coalition(role for role in team if role != turn.role)]

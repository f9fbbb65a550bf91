"""AT-GRPO: groups of candidates from one observation, per agent and turn (Stronger Together, 2510.11062, alg. 1).

At every decision K replies are drawn from the same prompt, each is scored on its own fork, and
A = (r − mean_g) / norm_g within the group (episode, decision, role). Unlike GRPO it gives credit per decision: a
good opening is not blamed for a later blunder. The paper scores a candidate by its step reward; where rewards
come only at the end all candidates would tie, so a continuation is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, CriticSettings, LossSettings, Tree, register
from interplay.types import Episode


class ATGRPOSettings(LossSettings):
    candidates: int = Field(4, ge=2, description="K, replies per decision")
    continuation: Literal["none", "playout", "critic"] = "playout"
    playouts: int = Field(1, ge=1, description="plays to the end per candidate")
    keep: Literal["greedy", "softmax", "uniform"] = "greedy"
    keep_temperature: float = Field(1.0, gt=0, description="of the softmax over candidate returns")
    scale: bool = Field(True, description="divide by the group's standard deviation")
    critic: CriticSettings = CriticSettings()


@register("at_grpo")
class ATGRPO(Algorithm):
    Settings = ATGRPOSettings
    settings: ATGRPOSettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(s.candidates, s.continuation, s.playouts, s.keep, s.keep_temperature)

    @property
    def critic(self) -> CriticSettings | None:
        return self.settings.critic if self.settings.continuation == "critic" else None

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        turns = [t for e in episodes for t in e.turns if t.playout is None and t.outlook is not None]
        grouped = credit.groups(turns, ("episode", "decision", "role"))
        for group in grouped:
            values = [credit.candidate_return(t, self.reward) for t in group]
            for turn, advantage in zip(group, credit.centred(values, self.settings.scale), strict=True):
                turn.advantage = advantage
        return {"credit/groups_of_one": sum(len(g) == 1 for g in grouped), **credit.summary(turns)}

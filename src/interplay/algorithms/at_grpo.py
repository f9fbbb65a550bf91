"""AT-GRPO: groups of candidates from one observation, per agent and turn (Stronger Together, 2510.11062, alg. 1).

At every decision K replies are drawn from the same prompt, each is scored on its own fork, and
A = (r − mean_g) / norm_g within the group (episode, decision, role). Unlike GRPO it gives credit per decision: a
good opening is not blamed for a later blunder. The paper scores a candidate by its step reward; where rewards
come only at the end all candidates would tie, so a continuation is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Keep, Tree, TreeSettings, register
from interplay.types import Episode


class ATGRPOSettings(TreeSettings):
    candidates: int = Field(4, ge=2, description="K, replies per decision")
    keep: Keep = "greedy"
    keep_temperature: float = Field(1.0, gt=0, description="of the softmax over candidate returns")
    scale: bool = Field(True, description="divide by the group's standard deviation")


@register("at_grpo")
class ATGRPO(Algorithm):
    Settings = ATGRPOSettings
    settings: ATGRPOSettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(s.candidates, s.continuation, s.playouts, s.keep, s.keep_temperature)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        return credit.grade_candidates(episodes, self.reward, credit.RULES["scaled" if self.settings.scale else "mean"])

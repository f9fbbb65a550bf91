"""GRPO: the mean over a group of whole episodes of one task is the baseline (DeepSeekMath, 2402.03300, eq. 3).

A = (R − mean_g) / (std_g + ε), R the return of one role over its episode, given to all its turns. The group is
(task, role): with several agents, roles see different prompts and earn different rewards, so they are never
compared with one another. It does not look inside the episode; AT-GRPO does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings, register
from interplay.types import Episode


class GRPOSettings(LossSettings):
    group: int = Field(8, ge=2, description="episodes per task")
    scale: bool = Field(True, description="divide by the group's standard deviation (Dr.GRPO does not)")


@register("grpo")
class GRPO(Algorithm):
    Settings = GRPOSettings
    settings: GRPOSettings

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.group)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        return credit.grade_episodes(episodes, self.reward, credit.RULES["scaled" if self.settings.scale else "mean"])

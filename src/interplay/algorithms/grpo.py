"""GRPO: the mean over a group of whole episodes of one task is the baseline (DeepSeekMath, 2402.03300, sec. 4.1).

A = (R − mean_g) / (std_g + ε), R the return of one role over its episode, given to all its turns; the loss is the mean
over replies of the mean over each one's tokens. The group is (task, role): with several agents, roles see different
prompts and earn different rewards, so they are never compared with one another. It needs no critic, unlike PPO, and
does not look inside the episode; AT-GRPO does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareEpisodes, EpisodeSettings


class GRPOSettings(EpisodeSettings):
    scale: bool = Field(True, description="divide by the group's standard deviation (Dr.GRPO does not)")
    average: Literal["token", "turn"] | int = "turn"


@register("grpo")
class GRPO(CompareEpisodes):
    Settings = GRPOSettings
    settings: GRPOSettings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.centred(returns, self.settings.scale)

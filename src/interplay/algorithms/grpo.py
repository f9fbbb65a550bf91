"""GRPO: the mean over a group of whole episodes of one task is the baseline (DeepSeekMath, 2402.03300, sec. 4.1).

A = (R − mean_g) / (std_g + ε), where R is the return of one role over its episode. All turns of the role get this
advantage. The loss is averaged over the tokens of each reply and then over replies. The group is (task, role): roles
see different prompts and earn different rewards, so they are never compared with one another. Unlike PPO, GRPO needs no
critic. It gives the same credit to all decisions of an episode; AT-GRPO gives credit per decision.
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

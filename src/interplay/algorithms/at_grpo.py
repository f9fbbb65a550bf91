"""AT-GRPO: groups of candidates from one observation, per agent and turn (Stronger Together, 2510.11062).

At every decision, K replies are drawn from the same prompt and each is scored on its own fork. The advantage is
A = (r − mean_g) / norm_g within the group (episode, decision, role), with r = α·r_team + r_local (α is `reward.team`).
Unlike GRPO, it gives credit per decision: a good opening is not blamed for a later mistake. The paper scores a
candidate by its step reward. If rewards come only at the end of an episode, all candidates would have the same step
reward, so a continuation estimates the rest. The episode continues with the best reply, or as `keep` says. If all K
replies are the same, there is nothing to compare and no playouts are run.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareReplies, KeepSettings


class ATGRPOSettings(KeepSettings):
    scale: bool = Field(True, description="divide by the group's standard deviation")


@register("at_grpo")
class ATGRPO(CompareReplies):
    Settings = ATGRPOSettings
    settings: ATGRPOSettings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.centred(returns, self.settings.scale)

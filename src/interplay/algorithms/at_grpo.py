"""AT-GRPO: groups of candidates from one observation, per agent and turn (Stronger Together, 2510.11062).

At every decision K replies are drawn from the same prompt, each is scored on its own fork, and
A = (r − mean_g) / norm_g within the group (episode, decision, role), r = α·r_team + r_local (α is `reward.team`).
Unlike GRPO it gives credit per decision: a good opening is not blamed for a later blunder. The paper scores a
candidate by its step reward; where rewards come only at the end all candidates would tie, so a continuation is
required. The play goes on with the best reply, or as `keep` says. Where all K say the same there is nothing to
compare, and nobody plays on.
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

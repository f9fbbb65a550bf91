"""RLOO: each episode against the mean of the *others* of its group (Back to Basics, 2402.14740).

A_i = R_i − mean_{j≠i} R_j. GRPO's mean includes the episode itself, which shrinks the gradient by (G − 1)/G and,
divided by a deviation that depends on it too, bends it; this baseline does not know the episode and leaves the
gradient as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings, register
from interplay.types import Episode


class RLOOSettings(LossSettings):
    group: int = Field(8, ge=2, description="episodes per task")


@register("rloo")
class RLOO(Algorithm):
    Settings = RLOOSettings
    settings: RLOOSettings

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.group)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        return credit.grade_episodes(episodes, self.reward, credit.leave_one_out)

"""REINFORCE++: the return, whitened over the whole batch (2501.03262).

A = (R − mean R) / std R, over the batch. There is no group and no critic. One episode per task is enough, so a batch
holds more tasks. With `group` > 1 it is REINFORCE++-baseline: the group's mean is subtracted first, and the standard
deviation is still that of the batch, so small differences within a task are not scaled up as in GRPO. Without a group,
the return of a turn is what the role earns from this turn on. Each role of each policy is whitened separately, because
a seat with higher returns must not influence the advantages of another seat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareEpisodes, EpisodeSettings
from interplay.types import Credit, Episode


class ReinforcePPSettings(EpisodeSettings):
    group: int = Field(1, ge=1, description="episodes per task; if there are several, their mean is the baseline")


@register("reinforce_pp")
class ReinforcePP(CompareEpisodes):
    Settings = ReinforcePPSettings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.centred(returns, False)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        metrics: Mapping[str, float] = {}
        played = credit.lines(episodes)
        if self.settings.group > 1:
            metrics = super().credit(episodes, given)
        else:
            for line in played:
                for turn, ahead in zip(line, credit.returns(line, self.reward), strict=True):
                    given.give(turn, ahead)
        turns = [turn for line in played for turn in line]
        for members in credit.by_seat(turns):
            credit.whiten(members, given)
        return {**metrics, **credit.summary(turns, given)}

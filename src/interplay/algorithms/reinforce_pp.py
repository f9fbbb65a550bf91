"""REINFORCE++: the return, whitened over the whole batch (2501.03262).

A = (R − mean R) / std R, both of the batch. No group and no critic: one episode per task is enough, so that a batch
holds more tasks. With `group` > 1 it is REINFORCE++-baseline: the group's mean is taken off first, the deviation is
still that of the batch, so that a task with small differences is not blown up as in GRPO. Without a group a turn's
return is what follows it. Each policy's roles are whitened apart: what one seat is worth must not push another.
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

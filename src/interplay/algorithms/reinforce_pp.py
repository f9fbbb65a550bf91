"""REINFORCE++: the return, whitened over the whole batch of a policy (2501.03262).

No group and no critic: one episode per task is enough, so that a batch holds more tasks. With `group` > 1 it is
REINFORCE++-baseline: the group's mean is taken off first, the deviation is still that of the batch, so that a task
with small differences is not blown up as in GRPO. Without a group a turn's return is what follows it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, LossSettings, register
from interplay.types import Episode, Turn


class ReinforcePPSettings(LossSettings):
    group: int = Field(1, ge=1, description="episodes per task; above 1 their mean is the baseline")


@register("reinforce_pp")
class ReinforcePP(Algorithm):
    Settings = ReinforcePPSettings
    settings: ReinforcePPSettings

    @property
    def plan(self) -> Independent:
        return Independent(self.settings.group)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        metrics: Mapping[str, float] = {}
        played = credit.lines(episodes)
        if self.settings.group > 1:
            metrics = credit.grade_episodes(episodes, self.reward, credit.RULES["mean"])
        else:
            for line in played:
                for turn, ahead in zip(line, credit.returns(line, self.reward), strict=True):
                    turn.advantage = ahead
        by_policy: dict[str, list[Turn]] = defaultdict(list)
        for line in played:
            by_policy[line[0].policy] += line
        for turns in by_policy.values():
            credit.whiten(turns)
        return {**metrics, **credit.summary(t for line in played for t in line)}

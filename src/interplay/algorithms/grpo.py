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
        played = [line for line in credit.lines(episodes) if line]
        first = {id(line[0]): line for line in played}
        grouped = credit.groups([line[0] for line in played], ("task", "role"))
        for group in grouped:
            members = [first[id(turn)] for turn in group]
            totals = [credit.returns(line, self.reward)[0] for line in members]
            for line, advantage in zip(members, credit.centred(totals, self.settings.scale), strict=True):
                for turn in line:
                    turn.advantage = advantage
        lonely = sum(len(g) == 1 for g in grouped)
        return {"credit/groups_of_one": lonely, **credit.summary(t for line in played for t in line)}

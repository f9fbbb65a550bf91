"""DAPO: GRPO made to last on long reasoning (2503.14476, sec. 3).

Four changes. *Clip-higher* (0.2 below, 0.28 above) lets unlikely tokens become likely, against collapse. The mean is
over *tokens* of the batch, not over replies, so that long replies count in full. Groups that tie are *dropped*: they
would only dilute the mean (the paper samples until the batch is full; here the batch gets smaller, and how much is
reported). Length is punished *softly* before it is cut: set `overlong`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings
from interplay.types import Credit, Episode


class DAPOSettings(GRPOSettings):
    clip_high: float = Field(0.28, gt=0)
    average: Literal["token", "turn"] | int = "token"


@register("dapo")
class DAPO(GRPO):
    Settings = DAPOSettings

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        return credit.grade_episodes(episodes, given, self.reward, self.rule, drop_ties=True)

"""Dr.GRPO: GRPO without its two biases (Understanding R1-Zero-like Training, 2503.20783, sec. 3).

A = R − mean_g. It is not divided by the standard deviation, because this division gives more weight to tasks that are
nearly always or nearly never solved. The loss is divided by a constant length and not by the length of each reply,
because the latter makes long wrong replies cheap. `average` is this constant; set it to the token limit of a reply.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings


class DrGRPOSettings(GRPOSettings):
    scale: bool = False
    average: Literal["token", "turn"] | int = Field(64, description="the constant length that every turn is divided by")


@register("dr_grpo")
class DrGRPO(GRPO):
    Settings = DrGRPOSettings

"""Dr.GRPO: GRPO without its two biases (Understanding R1-Zero-like Training, 2503.20783, sec. 3).

A = R − mean_g, not divided by the deviation: that division weighs tasks nearly always or nearly never solved up. And
the loss divides by a constant length instead of each reply's own, which made long wrong replies cheap. `average` is
that constant; set it to the token limit of a reply.
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

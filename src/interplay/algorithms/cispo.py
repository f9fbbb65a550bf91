"""CISPO: GRPO that clips the importance weight instead of the gradient (MiniMax-M1, 2506.13585, sec. 3.1).

The loss is −sg(clip(ratio))·A·log π, averaged over the tokens of the batch (sg: no gradient flows through it). PPO's
clipping removes the gradient of the tokens that changed most, often the rare tokens that change the course of an
argument ("wait", "however"). In CISPO every token keeps a gradient, and only its weight is bounded. There is no lower
bound (`clip_low` is 1); the upper bound is 1 + `clip_high`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings


class CISPOSettings(GRPOSettings):
    loss: Literal["clip", "gspo", "cispo"] = "cispo"
    clip_low: float = Field(1.0, gt=0, description="the weight of a token is clipped below 1 minus this")
    clip_high: float = Field(5.0, gt=0, description="the weight of a token is clipped above 1 plus this")
    average: Literal["token", "turn"] | int = "token"


@register("cispo")
class CISPO(GRPO):
    Settings = CISPOSettings

"""CISPO: GRPO that clips the importance weight instead of the gradient (MiniMax-M1, 2506.13585, sec. 3.1).

Loss −sg(clip(ratio))·A·log π, a mean over the batch's tokens. PPO's clip removes the tokens that moved most, often the
rare ones that turn an argument ("wait", "however"); here every token keeps a gradient, its weight bounded. There is no
lower bound (`clip_low` 1); the upper is 1 + `clip_high`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings


class CISPOSettings(GRPOSettings):
    loss: Literal["clip", "gspo", "cispo"] = "cispo"
    clip_low: float = Field(1.0, gt=0)
    clip_high: float = Field(5.0, gt=0)
    average: Literal["token", "turn"] | int = "token"


@register("cispo")
class CISPO(GRPO):
    Settings = CISPOSettings

"""GSPO: GRPO whose ratio is that of the whole reply (2507.18071, sec. 4).

s = exp(mean_t log ratio_t), clipped per reply. The reward judges a reply as a whole, so it is kept or clipped as a
whole; GRPO's ratios per token are each a sample of size one, whose noise grows with length and breaks
mixture-of-experts models. The bounds are small because a mean of logs moves little.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings


class GSPOSettings(GRPOSettings):
    loss: Literal["clip", "gspo", "cispo"] = "gspo"
    clip_low: float = Field(3e-4, gt=0)
    clip_high: float = Field(4e-4, gt=0)


@register("gspo")
class GSPO(GRPO):
    Settings = GSPOSettings

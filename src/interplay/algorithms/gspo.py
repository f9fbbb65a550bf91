"""GSPO: GRPO with one ratio for the whole reply (2507.18071, sec. 4).

The ratio is s = exp(mean_t log ratio_t), clipped per reply. The reward judges a reply as a whole, so the reply is kept
or clipped as a whole. GRPO has one ratio per token. Each of these is estimated from a single sample, and their noise
grows with the length of the reply and destabilises mixture-of-experts models. The clipping bounds of GSPO are small,
because a mean of log ratios changes little.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings


class GSPOSettings(GRPOSettings):
    loss: Literal["clip", "gspo", "cispo"] = "gspo"
    clip_low: float = Field(3e-4, gt=0, description="the ratio of a reply is clipped below 1 minus this")
    clip_high: float = Field(4e-4, gt=0, description="the ratio of a reply is clipped above 1 plus this")


@register("gspo")
class GSPO(GRPO):
    Settings = GSPOSettings

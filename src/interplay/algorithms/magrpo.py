"""MAGRPO: the joint action is what is compared (LLM Collaboration with MARL, 2508.04652).

Every acting role draws K replies. Joint action j earns R_j = r_j + γ·mean(its playouts), and A_j = R_j − mean R is
given to all replies in it. Joints are `aligned`, the k-th reply of each (K joints), or `crossed`, all combinations, a
reply's return then being the mean over those it is part of. AT-GRPO instead scores a reply against the others' first,
so that teammates differ by what they did; here they share the fate of the joint action. With one role at a time all
are one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from interplay.algorithms.algorithm import Keep, Tree, register
from interplay.algorithms.at_grpo import ATGRPO, ATGRPOSettings


class MAGRPOSettings(ATGRPOSettings):
    joint: Literal["aligned", "crossed"] = "aligned"
    keep: Keep = "uniform"
    scale: bool = False


@register("magrpo")
class MAGRPO(ATGRPO):
    Settings = MAGRPOSettings
    settings: MAGRPOSettings

    @property
    def plan(self) -> Tree:
        return replace(super().plan, joint=self.settings.joint)

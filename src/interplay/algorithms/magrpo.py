"""MAGRPO: compares joint actions (LLM Collaboration with MARL, 2508.04652).

Every acting role draws K replies. Joint action j earns R_j = r_j + γ·mean(its playouts), and all its replies get the
advantage A_j = R_j − mean R. The joint actions are `aligned` (the k-th reply of each role, so K joint actions) or
`crossed` (all combinations; the return of a reply is then the mean over the joint actions it is part of). AT-GRPO
instead scores a reply together with the first replies of the other roles, so teammates get different credit for what
they did. In MAGRPO all replies of a joint action share its credit. If only one role acts at a time, these are the same.
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

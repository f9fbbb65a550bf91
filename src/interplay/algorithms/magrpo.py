"""MAGRPO: the joint action is what is compared (LLM Collaboration with MARL, 2508.04652).

Every acting role draws K replies. Joint action j earns R_j = r_j + γ·mean(its playouts), and A_j = R_j − mean R is
given to all replies in it. Joints are `aligned`, the k-th reply of each (K joints), or `crossed`, all combinations, a
reply's return then being the mean over those it is part of. AT-GRPO instead scores a reply against the others' first,
so that teammates differ by what they did; here they share the fate of the joint action. With one role at a time all
are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Keep, Tree, TreeSettings, register
from interplay.types import Episode


class MAGRPOSettings(TreeSettings):
    candidates: int = Field(4, ge=2, description="K, replies per decision")
    joint: Literal["aligned", "crossed"] = "aligned"
    keep: Keep = "uniform"
    scale: bool = Field(False, description="divide by the group's standard deviation")


@register("magrpo")
class MAGRPO(Algorithm):
    Settings = MAGRPOSettings
    settings: MAGRPOSettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(s.candidates, s.continuation, s.playouts, s.keep, joint=s.joint)

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        return credit.grade_candidates(episodes, self.reward, credit.RULES["scaled" if self.settings.scale else "mean"])

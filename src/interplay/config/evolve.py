"""[evolve]: workflows that change while their policies are trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.config.section import Section

MotifName = Literal["vote", "ensemble", "review", "test", "program", "hand_over", "drop"]


class EvolveSection(Section):
    """Candidates are workflows as data. Whole motifs applied to the champion, or a designer, make new candidates. They
    are played on the validation split with frozen policies, and the best one becomes the champion."""

    every: int = Field(10, ge=1, description="training steps between two rounds")
    candidates: int = Field(8, ge=1, description="new workflows in each round")
    tasks: int = Field(
        8, ge=1, description="validation tasks in the first comparison of a round; each later comparison doubles them"
    )
    looks: int = Field(4, ge=1, description="comparisons in a round; after each one the better half remains")
    price: float = Field(0.0, ge=0, description="what 1,000 sampled tokens cost, in units of reward")
    nodes: int = Field(8, ge=1, description="the largest number of nodes of a workflow")
    motifs: list[MotifName] = Field(
        ["vote", "ensemble", "review", "test", "program", "hand_over", "drop"], description="the moves that may be made"
    )
    verify: str = Field("", description="module:function of (task, text), for the motif test")
    fade: float = Field(
        0.8,
        gt=0,
        le=1,
        description="weight of a round's episodes in the next round; it is below 1 because policies change",
    )
    designer: str = Field("", description="a policy that proposes workflows too, and learns from what they are worth")
    designs: int = Field(4, ge=2, description="proposals of the designer in a round; they form one group of replies")

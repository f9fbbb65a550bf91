"""[evolve]: workflows that change while their policies are trained."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from interplay.config.section import Section

MotifName = Literal["vote", "ensemble", "review", "test", "program", "hand_over", "drop"]


class EvolveSection(Section):
    """Searches for a better workflow while the policies are trained. The best workflow so far is the champion. In every
    round, motifs (typical changes, such as a vote) and the designer make new workflows from it. These candidates are
    played on the validation split with frozen policies, and the best one becomes the champion."""

    every: int = Field(10, ge=1, description="training steps between two rounds of the search")
    candidates: int = Field(8, ge=1, description="new workflows in each round")
    tasks: int = Field(
        8, ge=1, description="validation tasks in the first comparison of a round; each later comparison doubles them"
    )
    looks: int = Field(
        4, ge=1, description="comparisons in a round; after each one, the better half of the candidates remains"
    )
    price: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="what 1,000 sampled tokens cost a workflow, in units of reward"
    )
    nodes: int = Field(8, ge=1, description="the largest number of nodes of a workflow")
    motifs: list[MotifName] = Field(
        ["vote", "ensemble", "review", "test", "program", "hand_over", "drop"],
        description="the typical changes that may make a new workflow from the best one so far",
    )
    verify: str = Field(
        "",
        description="the function that the change `test` of evolve.motifs uses to check an answer: module:function, "
        "called with the task and the text; empty: the change `test` is not used",
    )
    fade: float = Field(
        0.8,
        gt=0,
        le=1,
        description="weight of a round's episodes in the next round; below 1, because the policies change meanwhile",
    )
    designer: str = Field(
        "", description="a policy that also proposes workflows, and is trained on how well they score; empty: none"
    )
    designs: int = Field(4, ge=2, description="proposals of the designer in a round; they form one group of replies")

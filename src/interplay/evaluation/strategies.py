"""What a language model plays, as a table: the probability of every legal reply to every prompt of a small game.

This is what `exploitability.py` asks for. Each legal reply is scored token by token, end token included, in one batch;
nothing is sampled, so the figure has no noise. What the model would say that is not on the list is reported apart, as
`stray`, and the rest is taken in proportion: the strategy is that of a player whose stray replies are drawn again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass

from interplay.evaluation.exploitability import Exploitability, Prompt, decisions, exploitability
from interplay.rollout.resolve import Plan
from interplay.rollout.team import Team
from interplay.types import Role


@dataclass(frozen=True)
class Measured:
    found: Exploitability
    table: Mapping[tuple[Role, Prompt], Mapping[str, float]]
    stray: float  # probability of a reply that is not on the list, the mean over all decisions

    def metrics(self) -> dict[str, float]:
        return {"eval/exploitability": self.found.exploitability, "eval/stray": self.stray}


async def measure(plan: Plan, team: Team) -> Measured:
    """Of the recipe's seats, at temperature 1: what best responses would win against each of them."""
    task = plan.task(0)
    asked = decisions(task)

    async def score(role: Role, prompt: Prompt, legal: tuple[str, ...]) -> list[float]:
        member = team.members[plan.seats[role]]
        replies = [member.renderer.encode_reply(text) for text in legal]
        adapter = None if member.adapter is None else member.name
        scored = await member.engine.score(member.renderer.prompt(prompt).ids, replies, adapter)
        return [math.exp(sum(tokens)) for tokens in scored]

    table: dict[tuple[Role, Prompt], dict[str, float]] = {}
    strays = []
    for (role, prompt, legal), mass in zip(asked, await asyncio.gather(*(score(*a) for a in asked)), strict=True):
        total = sum(mass)
        strays.append(max(0.0, 1.0 - total))
        share = [m / total for m in mass] if total > 0 else [1 / len(legal)] * len(legal)
        table[role, prompt] = dict(zip(legal, share, strict=True))
    found = exploitability(task, lambda role, prompt, legal: table[role, prompt])
    return Measured(found, table, sum(strays) / len(strays))

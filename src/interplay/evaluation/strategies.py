"""Turns players into tables for `exploitability.py`: the probability of every legal action at every decision.

The legal replies of a language model are scored token by token, with the end token, at temperature 1, in one batch. A
bot reports its own probabilities (`Bot.odds`). Nothing is sampled, so the result has no noise. The probability of
replies that are not legal is reported separately, as `stray`; the probabilities of the legal replies are rescaled to
sum to 1. The table is then the strategy of a player that draws again whenever its reply is not legal.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interplay.agents.bots import make_bot
from interplay.errors import ConfigError
from interplay.evaluation.exploitability import (
    Exploitability,
    GameTree,
    StrategyPrompt,
    StrategyQuestion,
    decisions,
    exploitability,
)
from interplay.rollout.members import Member
from interplay.rollout.team import Team
from interplay.seats import RunPlan
from interplay.types import Occupant, Role, Scripted

Odds = tuple[Mapping[str, float], float]  # probability of each legal action, and of all other replies


@dataclass(frozen=True)
class Measured:
    found: Exploitability
    table: Mapping[tuple[Role, StrategyPrompt], Mapping[str, float]]
    stray: float  # probability of a reply that is not on the list, the mean over all decisions

    def metrics(self) -> dict[str, float]:
        return {"eval/exploitability": self.found.exploitability, "eval/stray": self.stray}


async def measure(
    plan: RunPlan,
    team: Team,
    seats: Mapping[Role, Occupant] | None = None,
    tree: GameTree | None = None,
) -> Measured:
    """The exploitability of `seats` (default: the recipe's), each player in its role. Pass the `tree` of the game if
    another player was measured on it already: most of the time goes into building it."""
    task = plan.task(0)
    tree = tree or GameTree(task)
    asked = decisions(tree)
    found: dict[tuple[Role, StrategyPrompt], Odds] = {}
    for role, who in (seats or plan.seats).items():
        mine = [a for a in asked if a.role == role]
        odds = _bot(team, who, mine) if isinstance(who, Scripted) else await _model(team, who, mine)
        found |= {(a.role, a.prompt): o for a, o in zip(mine, odds, strict=True)}
    table = {key: odds for key, (odds, _) in found.items()}
    stray = sum(stray for _, stray in found.values()) / len(found)
    return Measured(exploitability(task, lambda role, prompt, legal: table[role, prompt], tree), table, stray)


def _bot(team: Team, who: Scripted, asked: Sequence[StrategyQuestion]) -> list[Odds]:
    bot = make_bot(who.bot, team.env_name)
    out = []
    for a in asked:
        odds = bot.odds(a.env, a.role)
        if odds is None:
            raise ConfigError(f"{who} does not report the probabilities of its moves.")
        out.append((odds, 0.0))
    return out


async def _model(team: Team, who: Occupant, asked: Sequence[StrategyQuestion]) -> list[Odds]:
    member = team.members.get(str(who))
    if member is None:
        raise ConfigError(f"{who} is a remote model, which returns no log-probs.")
    return list(await asyncio.gather(*(_scored(member, a) for a in asked)))


async def _scored(member: Member, asked: StrategyQuestion) -> Odds:
    prompt = member.renderer.prompt(asked.prompt)
    replies = [member.renderer.encode_reply(text) for text in asked.legal]
    adapter = None if member.adapter is None else member.name
    logs = [math.fsum(found) for found in await member.engine.score(prompt.ids, replies, adapter, prompt.media)]
    weights = [math.exp(value - max(logs)) for value in logs]  # the largest is 1, so their sum is not 0
    odds = {text: w / math.fsum(weights) for text, w in zip(asked.legal, weights, strict=True)}
    return odds, max(0.0, 1.0 - math.fsum(map(math.exp, logs)))

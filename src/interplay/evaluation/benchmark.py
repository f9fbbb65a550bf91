"""Measures a recipe's policies on held-out tasks, each policy in the roles that the recipe gives it.

Against an opponent, the seats of the recipe are measured one at a time: that seat keeps its policy, and the opponent
takes all other seats. The opponent `team` means that the recipe's own policies play together. The same seeds give the
same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any

from interplay.config import TEAM, Recipe
from interplay.evaluation import intervals
from interplay.evaluation.field import Field
from interplay.evaluation.measures import by_task, tokens, verdict
from interplay.seats import RunPlan
from interplay.types import Episode, Occupant, Role, Scripted


@dataclass(frozen=True)
class SeatResult:
    """The result of one policy in one seat against one opponent. A role wins when its total reward is higher than every
    other role's. A team wins when it succeeds, and a team has no draws."""

    policy: str
    opponent: str
    role: Role
    games: int
    failed: int
    wins: int
    draws: int
    losses: int
    win_low: float
    win_high: float
    reward: float
    reward_low: float
    reward_high: float
    turns: int
    illegal: int
    tokens: int
    calls: int = 0  # of tools

    @property
    def win_rate(self) -> float:
        return self.wins / max(1, self.games)

    @property
    def illegal_rate(self) -> float:
        return self.illegal / max(1, self.turns)

    @property
    def tokens_per_episode(self) -> float:
        return self.tokens / max(1, self.games)

    @staticmethod
    def from_json(data: dict[str, Any]) -> SeatResult:
        return SeatResult(**{f.name: data[f.name] for f in fields(SeatResult) if f.name in data})

    def to_json(self) -> dict[str, Any]:
        rates = ("win_rate", "illegal_rate", "tokens_per_episode")
        return asdict(self) | {name: getattr(self, name) for name in rates}


@dataclass(frozen=True)
class Lineup:
    """Who is measured (`policy`, in `role`), against which opponent, and who sits in every seat."""

    policy: str
    opponent: str
    role: Role
    seats: Mapping[Role, Occupant]


def lineups(plan: RunPlan, opponents: Sequence[str], seats: Mapping[Role, Occupant] | None = None) -> Iterator[Lineup]:
    """For the opponent `team`, one line-up. For every other opponent, one line-up per seat of `seats` (default: the
    recipe's seats without those of bots, or all of them if they hold nothing else)."""
    models = {r: w for r, w in plan.seats.items() if not isinstance(w, Scripted)}
    mine = (models or plan.seats) if seats is None else seats
    for opponent in opponents:
        if opponent == TEAM:
            yield Lineup(TEAM, TEAM, TEAM, dict(plan.seats))
            continue
        other = plan.occupant(opponent)
        for role, who in mine.items():
            yield Lineup(str(who), opponent, role, {r: who if r == role else other for r in plan.roles})


async def evaluate(
    field: Field, opponents: Sequence[str], seats: Mapping[Role, Occupant] | None = None
) -> list[SeatResult]:
    """Plays every line-up and returns one result for each."""
    return [
        tally_lineup(field.plan.recipe, await field.play(x.seats), x) for x in lineups(field.plan, opponents, seats)
    ]


def tally_lineup(recipe: Recipe, episodes: Sequence[Episode], lineup: Lineup) -> SeatResult:
    return tally(recipe, episodes, lineup.policy, lineup.opponent, lineup.role)


def tally(recipe: Recipe, episodes: Sequence[Episode], policy: str, opponent: str, role: Role) -> SeatResult:
    """Counts the episodes of one line-up. Episodes with an error are counted as failed, not as wins or losses."""
    tasks = by_task(episodes)
    found = [[verdict(recipe, e, role) for e in games] for games in tasks.values()]
    good = [e for games in tasks.values() for e in games]
    wins = sum(v.won for games in found for v in games)
    draws = sum(v.drawn for games in found for v in games)
    win = intervals.share([[v.won for v in games] for games in found])
    score = intervals.mean([fmean(v.score for v in games) for games in found])
    played = [t for e in good for t in e.line(None if role == TEAM else role)]
    return SeatResult(
        policy, opponent, role, len(good), len(episodes) - len(good), wins, draws, len(good) - wins - draws,
        win.low, win.high, *score, len(played), sum(t.illegal for t in played),
        sum(tokens(e, role) for e in good), sum(len(t.samples[:-1]) for t in played),
    )  # fmt: skip

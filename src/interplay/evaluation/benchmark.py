"""A policy against fixed opponents, from every seat, on held-out tasks, without any masking of illegal replies.

The policy sits in one of its roles, the opponent in all others; or the recipe's own seats play together, as a team.
The same seeds give the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean
from typing import Any

from interplay.algorithms import Independent, credit
from interplay.config import TEAM, Recipe
from interplay.errors import InterplayError
from interplay.evaluation import intervals
from interplay.rollout.resolve import Plan
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team
from interplay.types import Episode, Role, Status


@dataclass(frozen=True)
class SeatResult:
    """One policy in one seat against one opponent. A win is a higher total reward than every other role's; a team's
    is a success, and there are no draws."""

    policy: str
    opponent: str
    role: Role
    games: int
    failed: int
    wins: int
    draws: int
    losses: int
    reward: float
    reward_low: float
    reward_high: float
    turns: int
    illegal: int
    tokens: int

    @property
    def win_rate(self) -> float:
        return self.wins / max(1, self.games)

    @property
    def win_interval(self) -> tuple[float, float]:
        return intervals.wilson(self.wins, self.games)

    @property
    def illegal_rate(self) -> float:
        return self.illegal / max(1, self.turns)

    @staticmethod
    def from_json(data: dict[str, Any]) -> SeatResult:
        return SeatResult(**{f.name: data[f.name] for f in fields(SeatResult)})

    def to_json(self) -> dict[str, Any]:
        low, high = self.win_interval
        return asdict(self) | {
            "win_rate": self.win_rate, "win_low": low, "win_high": high, "illegal_rate": self.illegal_rate,
        }  # fmt: skip


async def evaluate(
    plan: Plan,
    team: Team,
    policies: Sequence[str],
    opponents: Sequence[str],
    games: int,
    split: str,
    temperature: float,
    done: Callable[[Episode], None] | None = None,
) -> list[SeatResult]:
    """Every policy × opponent × seat of its own, `games` games each; the team once."""
    results = []
    if TEAM in opponents:
        results.append(await _seat(plan, team, TEAM, TEAM, TEAM, dict(plan.seats), games, split, temperature, done))
    for policy in policies:
        for opponent in opponents:
            for role in roles_of(plan, policy) if opponent != TEAM else ():
                seats = {r: policy if r == role else opponent for r in plan.roles}
                results.append(await _seat(plan, team, policy, opponent, role, seats, games, split, temperature, done))
    return results


def roles_of(plan: Plan, occupant: str) -> list[Role]:
    """Where to measure it: in the roles it sits in; whoever sits nowhere, in all of them."""
    return [role for role, who in plan.seats.items() if who == occupant] or list(plan.roles)


async def _seat(
    plan: Plan, team: Team, policy: str, opponent: str, role: Role, seats: dict[Role, str], games: int, split: str,
    temperature: float, done: Callable[[Episode], None] | None,
) -> SeatResult:  # fmt: skip
    recipe = plan.recipe
    runner = Runner(recipe.seed + 1, recipe.rollout, Independent(), recipe.reward)
    tasks = [plan.task(i, split) for i in range(games)]
    episodes = await runner.run(tasks, team.seating(lambda _: seats, temperature, recipe.sampling.max_tokens), done)
    good = [e for e in episodes if e.error is None]
    if not good:
        raise InterplayError(
            f"all {games} evaluation games of {policy} as {role} against {opponent} failed: {episodes[0].error}"
        )
    if role == TEAM:
        return tally_team(recipe, good, failed=len(episodes) - len(good))
    return tally(recipe, good, policy, opponent, role, failed=len(episodes) - len(good))


def tally_team(recipe: Recipe, episodes: Sequence[Episode], failed: int) -> SeatResult:
    """Successes by the reward the recipe names; the reward is the mean over seats."""
    name = recipe.eval.success
    wins = sum(any(r.name == name and r.value is not None and r.value >= 1 for r in e.rewards) for e in episodes)
    scores = [fmean(credit.mix(e.rewards, role, recipe.reward) for role in e.seats) for e in episodes]
    played = [t for e in episodes for t in e.line()]
    centre, low, high = intervals.mean(scores)
    return SeatResult(
        TEAM, TEAM, TEAM, len(episodes), failed, wins, 0, len(episodes) - wins, centre, low, high, len(played),
        sum(t.status is Status.ILLEGAL for t in played), sum(t.sampled for t in played),
    )  # fmt: skip


def tally(
    recipe: Recipe, episodes: Sequence[Episode], policy: str, opponent: str, role: Role, failed: int
) -> SeatResult:
    wins = draws = 0
    totals = []
    for episode in episodes:
        score = {r: credit.mix(episode.rewards, r, recipe.reward) for r in episode.seats}
        rival = max((v for r, v in score.items() if r != role), default=0.0)
        wins += score[role] > rival
        draws += score[role] == rival
        totals.append(score[role])
    mine = [t for e in episodes for t in e.line(role)]
    centre, low, high = intervals.mean(totals)
    return SeatResult(
        policy, opponent, role, len(episodes), failed, wins, draws, len(episodes) - wins - draws, centre, low, high,
        len(mine), sum(t.status is Status.ILLEGAL for t in mine), sum(t.sampled for t in mine),
    )  # fmt: skip

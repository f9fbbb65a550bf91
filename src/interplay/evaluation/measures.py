"""Success and score of one episode, and of all episodes of a task: averages and pass@k."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean
from typing import NamedTuple

from interplay.algorithms import credit
from interplay.config import TEAM, Recipe
from interplay.evaluation.intervals import Estimate, bootstrap, wilson
from interplay.types import Episode, Role


class GameVerdict(NamedTuple):
    won: bool
    drawn: bool
    score: float


def verdict(recipe: Recipe, episode: Episode, role: Role) -> GameVerdict:
    """A role wins when its total reward is higher than every other role's. A team (`TEAM`) succeeds when the reward
    named by `eval.success` adds up to `eval.goal`; its score is the mean over its seats. Rewards are mixed as in
    training."""
    score = {r: credit.mix(episode.rewards, r, recipe.reward) for r in episode.seats}
    if role == TEAM:
        return GameVerdict(succeeded(recipe, episode), False, fmean(score.values()))
    rival = max((v for r, v in score.items() if r != role), default=0.0)
    return GameVerdict(score[role] > rival, score[role] == rival, score[role])


def succeeded(recipe: Recipe, episode: Episode) -> bool:
    """Whether the reward `eval.success` reached the goal. If it is given to single roles, the best role counts."""
    totals: dict[Role | None, float] = {}
    for r in episode.rewards:
        if r.name == recipe.eval.success and r.value is not None:
            totals[r.role] = totals.get(r.role, 0.0) + r.value
    return max(totals.values(), default=-float("inf")) >= recipe.eval.goal - 1e-9


def tokens(episode: Episode, role: Role) -> int:
    """Tokens sampled in the turns that were played, by one role or by the whole team."""
    return sum(t.sampled for t in episode.line(None if role == TEAM else role))


def by_task(episodes: Iterable[Episode]) -> dict[str, list[Episode]]:
    """The episodes without an error, grouped by task, in the order given."""
    found: dict[str, list[Episode]] = {}
    for episode in episodes:
        if episode.error is None:
            found.setdefault(episode.task.id, []).append(episode)
    return found


def pass_at_k(games: int, won: int, k: int) -> float:
    """The chance that at least one of k games is won, estimated from `won` wins in `games` games with the unbiased
    estimator 1 − C(n−c, k)/C(n, k) (Chen et al. 2021).

    >>> pass_at_k(4, 1, 1), pass_at_k(4, 1, 2), pass_at_k(4, 1, 4)
    (0.25, 0.5, 1.0)
    """
    if not 1 <= k <= games:
        raise ValueError(f"pass@{k} needs at least {k} games of a task, but there are {games}.")
    return 1.0 - comb(games - won, k) / comb(games, k)


@dataclass(frozen=True)
class Passed:
    k: int
    share: Estimate
    tasks: int  # those with at least k games that did not fail


def passed(recipe: Recipe, episodes: Sequence[Episode], role: Role, samples: int) -> list[Passed]:
    """pass@k for k = 1, 2, 4, … and `samples`, averaged over tasks."""
    tasks = [[verdict(recipe, e, role).won for e in games] for games in by_task(episodes).values()]
    out = []
    for k in sorted({1 << i for i in range(samples.bit_length()) if 1 << i <= samples} | {samples}):
        shares = [pass_at_k(len(games), sum(games), k) for games in tasks if len(games) >= k]
        if shares:
            found = bootstrap(shares)
            if set(shares) in ({0.0}, {1.0}):  # a bootstrap of equal values has zero width; use Wilson's interval
                found = Estimate(found.value, *wilson(sum(shares), len(shares)))
            out.append(Passed(k, found, len(shares)))
    return out


@dataclass(frozen=True)
class TaskResult:
    task: str
    games: int
    won: int
    score: float
    tokens: float  # per episode
    turns: float


def per_task(recipe: Recipe, episodes: Sequence[Episode], role: Role) -> list[TaskResult]:
    out = []
    for name, games in by_task(episodes).items():
        found = [verdict(recipe, e, role) for e in games]
        mine = [e.line(None if role == TEAM else role) for e in games]
        won, score = sum(v.won for v in found), fmean(v.score for v in found)
        spent, turns = fmean(tokens(e, role) for e in games), fmean(map(len, mine))
        out.append(TaskResult(name, len(games), won, score, spent, turns))
    return out


def paired(before: Sequence[Episode], after: Sequence[Episode], measure: Callable[[Episode], float]) -> Estimate | None:
    """The mean of `before` minus the mean of `after`, paired by task, over the tasks that both have played."""
    a, b = by_task(before), by_task(after)
    gaps = [fmean(map(measure, a[t])) - fmean(map(measure, b[t])) for t in a if t in b]
    return bootstrap(gaps) if gaps else None

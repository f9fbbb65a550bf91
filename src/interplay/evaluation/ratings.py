"""Ratings from games between two players: Bradley–Terry with bootstrap intervals, and Elo, updated game by game.

The score of a game is 1 if the first player won, ½ for a draw and 0 if the first player lost. Both ratings are on Elo's
scale: 400 points are odds of ten to one, and the mean of all players is 1500.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interplay.rewards import strengths
from interplay.rewards.strengths import RatedGame as RatedGame

SCALE = 400 / math.log(10)
CENTRE = 1500.0


@dataclass(frozen=True)
class Rating:
    name: str
    value: float
    low: float
    high: float
    elo: float
    games: int
    score: float  # mean over all games of this player


def bradley_terry(games: Sequence[RatedGame], prior: float = 0.5) -> dict[str, float]:
    """The most likely ratings. `prior` draws against a player of mean strength are added, so that a player who never
    lost has a finite rating.

    >>> found = bradley_terry([("a", "b", 1.0)] * 10 + [("a", "b", 0.0)])
    >>> found["a"] > 1500 > found["b"]
    True
    """
    return {name: CENTRE + SCALE * v for name, v in strengths.bradley_terry(games, prior).values.items()}


def elo(games: Sequence[RatedGame], k: float = 16.0, orders: int = 20, seed: int = 0) -> dict[str, float]:
    """Elo's rule after all games, averaged over random orders, because the order of the games has no meaning."""
    names = sorted({n for a, b, _ in games for n in (a, b)})
    sums = dict.fromkeys(names, 0.0)
    rng = random.Random(seed)
    for _ in range(orders):
        rating = dict.fromkeys(names, CENTRE)
        for a, b, score in rng.sample(list(games), len(games)):
            expected = 1 / (1 + 10 ** ((rating[b] - rating[a]) / 400))
            rating[a] += k * (score - expected)
            rating[b] -= k * (score - expected)
        for n in names:
            sums[n] += rating[n] / orders
    return sums


def rate(
    games: Sequence[RatedGame], resamples: int = 200, seed: int = 0, tasks: Sequence[str] | None = None
) -> list[Rating]:
    """Every player's rating with a 95% bootstrap interval, the best player first. `tasks` names the task of each game:
    games of one task are correlated, so the bootstrap draws them together."""
    found, online = bradley_terry(games), elo(games, seed=seed)
    rng = random.Random(seed)
    together: dict[object, list[RatedGame]] = {}
    for i, game in enumerate(games):
        together.setdefault(i if tasks is None else tasks[i], []).append(game)
    groups = list(together.values())
    samples: dict[str, list[float]] = {n: [] for n in found}
    for _ in range(resamples):
        again = bradley_terry([game for group in rng.choices(groups, k=len(groups)) for game in group])
        for name, value in again.items():  # a player without a game in this sample has no rating in it
            samples[name].append(value)
    out = []
    for name, value in found.items():
        mine = [s if a == name else 1 - s for a, b, s in games if name in (a, b)]
        low, high = (float(v) for v in np.percentile(samples[name] or [value], (2.5, 97.5)))
        out.append(Rating(name, value, low, high, online[name], len(mine), sum(mine) / len(mine)))
    return sorted(out, key=lambda r: (-r.value, r.name))

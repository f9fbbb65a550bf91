"""Strengths from games between pairs: Bradley–Terry with bootstrap intervals, and Elo as it is updated game by game.

A score is 1 for a win, ½ for a draw and 0 for a loss of the first player. Both are on Elo's scale: 400 points are odds
of ten to one; the mean of all players is 1500.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

SCALE = 400 / math.log(10)
CENTRE = 1500.0
Game = tuple[str, str, float]  # first, second, score of the first


@dataclass(frozen=True)
class Rating:
    name: str
    value: float
    low: float
    high: float
    elo: float
    games: int
    score: float  # mean over all its games


def bradley_terry(games: Sequence[Game], prior: float = 0.5) -> dict[str, float]:
    """The most likely strengths (1952), by Hunter's minorisation (2004); `prior` draws against a player of mean
    strength keep a player who never lost finite.

    >>> found = bradley_terry([("a", "b", 1.0)] * 10 + [("a", "b", 0.0)])
    >>> found["a"] > 1500 > found["b"]
    True
    """
    names = sorted({n for a, b, _ in games for n in (a, b)})
    wins = dict.fromkeys(names, prior / 2)
    meetings: dict[tuple[str, str], float] = {}
    for a, b, score in games:
        wins[a] += score
        wins[b] += 1 - score
        pair = (a, b) if a < b else (b, a)
        meetings[pair] = meetings.get(pair, 0.0) + 1
    strength = dict.fromkeys(names, 1.0)
    for _ in range(10_000):
        load = {n: prior / (strength[n] + 1.0) for n in names}
        for (a, b), count in meetings.items():
            share = count / (strength[a] + strength[b])
            load[a] += share
            load[b] += share
        new = {n: wins[n] / load[n] for n in names}
        apart = max(abs(math.log(new[n] / strength[n])) for n in names)
        strength = new
        if apart < 1e-9:
            break
    logs = {n: math.log(s) for n, s in strength.items()}
    centre = sum(logs.values()) / len(logs)
    return {n: CENTRE + SCALE * (v - centre) for n, v in logs.items()}


def elo(games: Sequence[Game], k: float = 16.0, orders: int = 20, seed: int = 0) -> dict[str, float]:
    """Elo's rule after all games, averaged over shuffled orders, since the order has no meaning here."""
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
    games: Sequence[Game], resamples: int = 200, seed: int = 0, tasks: Sequence[str] | None = None
) -> list[Rating]:
    """Every player's rating with a 95% bootstrap interval, best first. `tasks` are what each game was about: games of
    one task are alike, and are drawn again together."""
    found, online = bradley_terry(games), elo(games, seed=seed)
    rng = random.Random(seed)
    together: dict[object, list[Game]] = {}
    for i, game in enumerate(games):
        together.setdefault(i if tasks is None else tasks[i], []).append(game)
    groups = list(together.values())
    samples: dict[str, list[float]] = {n: [] for n in found}
    for _ in range(resamples):
        again = bradley_terry([game for group in rng.choices(groups, k=len(groups)) for game in group])
        for name, value in again.items():  # a player without a game in this sample says nothing
            samples[name].append(value)
    out = []
    for name, value in found.items():
        mine = [s if a == name else 1 - s for a, b, s in games if name in (a, b)]
        ordered = sorted(samples[name]) or [value]
        low, high = ordered[int(0.025 * (len(ordered) - 1))], ordered[round(0.975 * (len(ordered) - 1))]
        out.append(Rating(name, value, low, high, online[name], len(mine), sum(mine) / len(mine)))
    return sorted(out, key=lambda r: (-r.value, r.name))

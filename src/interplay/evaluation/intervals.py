"""Confidence intervals, all of 95%: Wilson's for a share, Student's for a mean, the bootstrap for the rest.

Games of one task are alike, so tasks are what is counted: several games of a task do not make an interval as narrow as
games of as many tasks would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z95 = 1.959963984540054
RESAMPLES = 2000


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


def wilson(hits: float, total: float, z: float = Z95) -> tuple[float, float]:
    """The 95% interval of a share (Wilson, 1927): right also near 0 and 1, and for few trials."""
    if total == 0:
        return 0.0, 1.0
    p = hits / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(max(0.0, p * (1 - p) / total) + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: Sequence[Sequence[bool]]) -> Estimate:
    """The share of hits among all games, given task by task: Wilson's interval for as many independent games as would
    vary as much (Kish, 1965), which is all of them where each task has one game."""
    games = [hit for task in hits for hit in task]
    if not games:
        return Estimate(0.0, 0.0, 1.0)
    tasks, total, p = len(hits), len(games), sum(games) / len(games)
    if total == tasks or p in (0.0, 1.0):
        independent = float(tasks)
    else:
        spread = sum((sum(task) - len(task) * p) ** 2 for task in hits) / total**2 * tasks / max(1, tasks - 1)
        independent = min(float(total), max(float(tasks), p * (1 - p) / spread)) if spread > 0 else float(total)
    return Estimate(p, *wilson(p * independent, independent))


def student(freedom: int) -> float:
    """The 97.5% point of Student's t: far more than the normal one for few values, the same for many.

    The first nine from the tables, then the expansion of Fisher and Cornish (1960), right to four digits.
    """
    if freedom < 10:
        return (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)[freedom - 1]
    z, n = Z95, freedom
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def mean(values: Sequence[float]) -> Estimate:
    """Mean and its 95% interval."""
    n = len(values)
    centre = math.fsum(values) / n
    if n < 2:
        return Estimate(centre, -math.inf, math.inf)
    deviation = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (n - 1))
    half = student(n - 1) * deviation / math.sqrt(n)
    return Estimate(centre, centre - half, centre + half)


def bootstrap(values: Sequence[float], seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean of one number per task, with the middle 95% of means over tasks drawn again (Efron, 1979)."""
    table = np.asarray(values, dtype=np.float64)
    if len(table) < 2:
        return Estimate(float(table.mean()), -math.inf, math.inf)
    drawn = np.random.default_rng(seed).integers(0, len(table), (resamples, len(table)))
    means = np.sort(table[drawn].mean(axis=1))
    low, high = means[int(0.025 * (resamples - 1))], means[math.ceil(0.975 * (resamples - 1))]
    return Estimate(math.fsum(values) / len(values), float(low), float(high))

"""Confidence intervals, all of 95%: Wilson's for a share, Student's for a mean, the bootstrap for everything else.

Games of the same task are correlated, so several games of one task say less than the same number of games of different
tasks. The intervals therefore count tasks, or the effective number of independent games.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
import scipy  # scipy.stats takes a second to load, so it is loaded only at its first use

from interplay.rewards.agreement import Z95 as Z95
from interplay.rewards.agreement import wilson as wilson

RESAMPLES = 2000


class Estimate(NamedTuple):
    value: float
    low: float
    high: float


def share(hits: Sequence[Sequence[bool]]) -> Estimate:
    """The share of hits among all games, given task by task, with Wilson's interval.

    The interval uses the effective sample size (Kish, 1965): the number of independent games whose share would have the
    same variance. If each task has one game, that is the number of games.
    """
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


def mean(values: Sequence[float]) -> Estimate:
    """The mean with Student's interval. One value says nothing about the spread, so its interval is infinite."""
    centre = fmean(values)
    if len(values) < 2:
        return Estimate(centre, -math.inf, math.inf)
    half = float(scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values))
    return Estimate(centre, centre - half, centre + half)


def bootstrap(values: Sequence[float], seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The mean of one number per task, with a percentile bootstrap interval over tasks (Efron, 1979)."""
    centre = fmean(values)
    if len(values) < 2:
        return Estimate(centre, -math.inf, math.inf)
    found = scipy.stats.bootstrap(
        (np.asarray(values, dtype=np.float64),),
        np.mean,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Estimate(centre, float(found.low), float(found.high))

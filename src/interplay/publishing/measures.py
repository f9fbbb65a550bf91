"""Measures of a study besides gold: wins and preferences against the untrained learner, and how steady training was.

This module does not import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance, variance

from interplay.rewards.gold import Rater, Scored


def win_rate(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float:
    """Return how often ours is higher, over the tasks that both played. A tie counts as half a win.

    >>> win_rate({"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 0.0})
    0.75
    """
    return preference(ours, theirs, 0.0)


def preference(ours: Mapping[str, float], theirs: Mapping[str, float], temperature: float) -> float:
    """Return the mean probability that a rater of this temperature prefers ours, over the tasks that both played."""
    rater, both = Rater(temperature), sorted(set(ours) & set(theirs))
    if not both:
        return math.nan
    return fmean(rater.probability(Scored("", ours[task]), Scored("", theirs[task])) for task in both)


def drift(values: Sequence[float], window: int = 5) -> float:
    """Return how far the level of a noisy series moves: the standard deviation of the means of windows of steps, after
    subtracting the part that the noise inside the windows explains. It is 0 if there is only noise.

    >>> drift([1.0] * 5 + [3.0] * 5 + [1.0] * 5 + [3.0] * 5)
    1.1547005383792515
    """
    parts = [values[i : i + window] for i in range(0, len(values) - window + 1, window)]
    if len(parts) < 2 or window < 2:
        return math.nan
    within = fmean(variance(part) for part in parts)
    return math.sqrt(max(0.0, variance([fmean(part) for part in parts]) - within / window))


def recovery(values: Sequence[float], switches: Sequence[int], window: int = 3) -> list[int | None]:
    """Return for every switch how many steps it takes to recover: until the mean of `window` steps is at least the mean
    of the `window` steps before the switch minus its standard error. None if this does not happen before the next
    switch or the end. `switches` are the indices of the first values after each switch."""
    out: list[int | None] = []
    for n, at in enumerate(switches):
        end = switches[n + 1] if n + 1 < len(switches) else len(values)
        if at < window or end - at < window:
            continue  # there are too few values before or after
        before = values[at - window : at]
        level = fmean(before) - math.sqrt(2 * pvariance(before) / window)
        back = [k for k in range(end - at - window + 1) if fmean(values[at + k : at + k + window]) >= level - 1e-12]
        out.append(back[0] if back else None)
    return out

"""How well verdicts agree with labels: accuracy with its interval, Cohen's κ, calibration, and the baseline that every
table of judges should show, "the longer reply wins". No torch.

A label is 1 if the first reply is better, 0 if the second is, and ½ for a tie. Verdicts that abstain count only in the
coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # its parts take half a second to load, so each is loaded at its first use

from interplay.errors import DataError
from interplay.rewards.preference import Pair, Verdict

Z95 = 1.959963984540054  # 97.5% of a standard normal distribution are below it


def wilson(hits: float, total: float) -> tuple[float, float]:
    """The 95% interval of a share (Wilson, 1927), which also holds near 0 and 1 and for few trials.

    SciPy has it only for whole numbers (`binomtest`), but an effective number of games need not be whole.
    """
    if total == 0:
        return 0.0, 1.0
    p, z = hits / total, Z95
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(max(0.0, p * (1 - p) / total) + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True)
class Agreement:
    """`accuracy` is over pairs with a strict label and a verdict; a verdict of exactly ½ counts half. `kappa` is
    Cohen's, with ties as a separate class. `longer` is the accuracy of choosing the longer reply, and `shorter` the
    judge's own accuracy on the `shorter_count` pairs in which the shorter reply is better."""

    accuracy: float
    low: float
    high: float
    kappa: float
    coverage: float
    calibration: float
    longer: float
    count: int
    shorter: float = math.nan
    shorter_count: int = 0

    def passes(self, least: float) -> bool:
        """Whether the whole interval of the accuracy is above `least`."""
        return self.count > 0 and self.low > least


def agreement(pairs: Sequence[Pair], verdicts: Sequence[Verdict]) -> Agreement:
    """The agreement of verdicts with the labels of their pairs. Pairs without a label are refused."""
    if len(pairs) != len(verdicts):
        raise DataError(f"{len(pairs)} pairs have {len(verdicts)} verdicts; expected one verdict for each pair.")
    if any(p.label is None for p in pairs):
        raise DataError("a pair has no label; expected 1 (the first reply is better), 0 or 0.5.")
    labels = [float(p.label or 0.0) for p in pairs]
    given = [(y, v.p) for y, v in zip(labels, verdicts, strict=True) if v.p is not None]
    strict = [(y, p) for y, p in given if y != 0.5]
    hits = sum(_credit(y, p) for y, p in strict)
    low, high = wilson(hits, len(strict))
    longer = [(y, longer_wins(pair)) for y, pair in zip(labels, pairs, strict=True) if y != 0.5]
    short = [
        _credit(y, v.p)
        for y, pair, v in zip(labels, pairs, verdicts, strict=True)
        if v.p is not None and y != 0.5 and longer_wins(pair) == 1.0 - y
    ]
    return Agreement(
        hits / len(strict) if strict else math.nan,
        low,
        high,
        kappa([y for y, _ in given], [_decision(p) for _, p in given]),
        len(given) / len(pairs) if pairs else 0.0,
        expected_error([p for _, p in strict], [y for y, _ in strict]),
        sum(_credit(y, p) for y, p in longer) / len(longer) if longer else math.nan,
        len(strict),
        sum(short) / len(short) if short else math.nan,
        len(short),
    )


def longer_wins(pair: Pair) -> float:
    """The verdict of a judge that only counts characters."""
    first, second = len(pair.first), len(pair.second)
    return 0.5 if first == second else float(first > second)


def _decision(p: float) -> float:
    return 0.5 if p == 0.5 else float(p > 0.5)


def _credit(label: float, p: float) -> float:
    return 0.5 if p == 0.5 else float(_decision(p) == label)


def kappa(ours: Sequence[object], theirs: Sequence[object]) -> float:
    """Cohen's κ (1960): agreement beyond what both would reach by chance with the classes they use.

    >>> kappa([1, 1, 0, 0], [1, 0, 0, 0])
    0.5
    """
    if not ours:
        return math.nan
    n = len(ours)
    seen = sum(a == b for a, b in zip(ours, theirs, strict=True)) / n
    classes = {*ours, *theirs}
    chance = sum((list(ours).count(c) / n) * (list(theirs).count(c) / n) for c in classes)
    return 1.0 if chance == 1.0 else (seen - chance) / (1 - chance)


def expected_error(probabilities: Sequence[float], labels: Sequence[float], bins: int = 10) -> float:
    """Expected calibration error (Guo et al., 2017): the mean distance between the stated probability and how often it
    was right, over bins of equal width. All probabilities are of the first reply, so both orders of a pair count
    equally."""
    if not probabilities:
        return math.nan
    p, y = np.asarray(probabilities), np.asarray(labels)
    which = np.minimum((p * bins).astype(int), bins - 1)
    total = sum(abs(float((p[which == b] - y[which == b]).sum())) for b in set(which.tolist()))
    return total / len(p)


def temperature(probabilities: Sequence[float], labels: Sequence[float]) -> float:
    """The temperature T that makes σ(logit(p) / T) most likely. Above 1 the judge was too sure, below 1 not sure
    enough."""
    scores = scipy.special.logit(np.clip(np.asarray(probabilities), 1e-6, 1 - 1e-6))
    y = np.asarray(labels)

    def loss(log_t: float) -> float:
        p = np.clip(scipy.special.expit(scores / math.exp(log_t)), 1e-12, 1 - 1e-12)
        return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())

    return math.exp(scipy.optimize.minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x)


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The probability that a right answer scores above a wrong one; ties count half. NaN if one kind is missing."""
    right = [s for s, y in zip(scores, labels, strict=True) if y]
    wrong = [s for s, y in zip(scores, labels, strict=True) if not y]
    if not right or not wrong:
        return math.nan
    ranked = np.sort(np.asarray(wrong))
    below = np.searchsorted(ranked, right, "left")
    upto = np.searchsorted(ranked, right, "right")
    return float((below + upto).sum() / (2 * len(right) * len(wrong)))

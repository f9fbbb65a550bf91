"""Strengths from comparisons: Bradley–Terry, and Davidson's model, in which ties have their own probability. No torch.

P(i beats j) = π_i / (π_i + π_j + ν√(π_i π_j)), and the probability of a tie is proportional to ν√(π_i π_j) (Davidson,
1970); ν = 0 is Bradley and Terry's model (1952). With `place`, the player who is shown first is stronger by a factor.
Strengths are logarithms with mean 0, fitted by Newton's method; standard errors come from the inverse of the observed
information.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from interplay.errors import DataError

RatedGame = tuple[str, str, float]  # first, second, score of the first: 1, ½ or 0


@dataclass(frozen=True)
class Strengths:
    """Log-strengths by name with their standard errors. `tie` is log ν and `place` the log-advantage of the first
    place; each is None if it was not fitted."""

    values: Mapping[str, float]
    errors: Mapping[str, float]
    tie: float | None = None
    tie_error: float | None = None
    place: float | None = None
    place_error: float | None = None


def bradley_terry(games: Sequence[RatedGame], prior: float = 0.0) -> Strengths:
    """The most likely strengths; a tie is half a win. `prior` ties against a player of mean strength are added, so that
    a player who never lost has a finite strength. Without a prior, a very large standard error shows such a case."""
    names = sorted({n for a, b, _ in games for n in (a, b)})
    place = {name: i for i, name in enumerate(names)}
    won = np.zeros((len(names), len(names)))
    for a, b, score in games:
        won[place[a], place[b]] += score
        won[place[b], place[a]] += 1 - score
    met = won + won.T
    logs = np.zeros(len(names))
    curve = np.eye(len(names))
    for _ in range(200):
        beats, mean = expit(logs[:, None] - logs[None, :]), expit(logs)
        slope = (won - met * beats).sum(axis=1) + prior * (0.5 - mean)
        bend = met * beats * (1 - beats)
        curve = np.diag(bend.sum(axis=1) + prior * mean * (1 - mean)) - bend
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]  # least squares: without a prior only differences are known
        far = float(np.abs(step).max())
        logs += step * min(1.0, 2.0 / max(far, 1e-300))
        if far < 1e-10:
            break
    spread = _errors(curve)
    values = logs - logs.mean()
    return Strengths(_named(names, values), _named(names, spread))


def davidson(games: Sequence[RatedGame], place: bool = False) -> Strengths:
    """The most likely strengths and tie parameter; with `place` also the advantage of the first place."""
    if not any(score == 0.5 for _, _, score in games):
        raise DataError("Davidson's model needs ties, but there are none; expected bradley_terry for such games.")
    names = sorted({n for a, b, _ in games for n in (a, b)})
    index = {name: i for i, name in enumerate(names)}
    size = len(names) + 1 + place
    first = np.array([index[a] for a, _, _ in games])
    second = np.array([index[b] for _, b, _ in games])
    outcome = np.array([{1.0: 0, 0.5: 1, 0.0: 2}[s] for _, _, s in games])
    features = np.zeros((len(games), 3, size))  # of a win of the first, a tie, a win of the second
    rows = np.arange(len(games))
    for kind, sign in ((0, 0.5), (2, -0.5)):
        features[rows, kind, first] += sign
        features[rows, kind, second] -= sign
        if place:
            features[rows, kind, -1] = sign
    features[:, 1, len(names)] = 1.0
    found, curve = _newton(features, outcome)
    spread = _errors(curve)
    found[: len(names)] -= found[: len(names)].mean()
    at = len(names)
    return Strengths(
        _named(names, found),
        _named(names, spread),
        float(found[at]),
        float(spread[at]),
        float(found[-1]) if place else None,
        float(spread[-1]) if place else None,
    )


def _newton(features: np.ndarray, outcome: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of a multinomial likelihood whose logits are features · w, and its information there."""
    w = np.zeros(features.shape[2])
    curve = np.eye(len(w))
    chosen = features[np.arange(len(outcome)), outcome]
    for _ in range(200):
        logits = features @ w
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        mean = np.einsum("nk,nkd->nd", p, features)
        slope = (chosen - mean).sum(axis=0)
        curve = np.einsum("nk,nkd,nke->de", p, features, features) - mean.T @ mean
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        far = float(np.abs(step).max())
        w += step * min(1.0, 2.0 / max(far, 1e-300))
        if far < 1e-10:
            break
    return w, curve


def _errors(curve: np.ndarray) -> np.ndarray:
    """Standard errors from the information. Only differences of strengths are known, so one direction has no
    information and is left out."""
    return np.sqrt(np.diag(np.linalg.pinv(curve, rcond=1e-10, hermitian=True)))


def _named(names: Sequence[str], numbers: np.ndarray) -> dict[str, float]:
    return {name: float(x) if math.isfinite(x) else math.inf for name, x in zip(names, numbers, strict=False)}

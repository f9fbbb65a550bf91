"""Ratings of a league's learners over the run, from the games that they played in training.

A snapshot is its learner at an earlier step. So a game between a learner and a snapshot is a game between two steps of
the run, and all such games together give a rating to every step at which a snapshot was saved (Bradley and Terry's
model, on Elo's scale: 400 points are odds of ten to one).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from interplay.evaluation.ratings import bradley_terry
from interplay.rewards.strengths import RatedGame
from interplay.viewer.run import RunReader

_STEPS = 100  # steps that are rated at most, evenly spaced
_SCORE, _GAMES = "league/score/", "league/games/"


def ladder(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """The rating of each learner at the steps at which snapshots were saved, and at the last one. The first rated
    version of the first learner has rating 0. Runs that did not record how many games a score is from have none."""
    run.metrics.refresh()
    pairs = [tuple(name.removeprefix(_GAMES).split("/", 1)) for name in run.metrics.columns if name.startswith(_GAMES)]
    learners = list(dict.fromkeys(learner for learner, _ in pairs))
    rows = _rows(run, [opponent for _, opponent in pairs])
    games = [game for row in rows for pair in pairs for game in _games(run, row, *pair)]
    if not games:
        return {"steps": [], "ratings": {}}
    found = bradley_terry(games)
    steps = [0, *(int(run.metrics.steps[row]) for row in rows)]
    values = {who: [found.get(_name(who, step)) for step in steps] for who in learners}
    first = next(v for who in learners for v in values[who] if v is not None)
    return {
        "steps": steps,
        "ratings": {who: [None if v is None else v - first for v in row] for who, row in values.items()},
    }


def _rows(run: RunReader, opponents: list[str]) -> list[int]:
    """The rows of the metrics that are rated."""
    steps = run.metrics.steps
    saved = {at for opponent in opponents if (at := opponent.rpartition("@")[2]).isdigit()}
    rows = [row for row, step in enumerate(steps) if str(int(step)) in saved or row == len(steps) - 1]
    count = min(len(rows), _STEPS)
    return [rows[(i + 1) * len(rows) // count - 1] for i in range(count)]


def _games(run: RunReader, row: int, learner: str, opponent: str) -> Iterator[RatedGame]:
    """The games behind a score, each with their mean result. The score has one even game more, as a prior."""
    count, score = (run.metrics.columns.get(f"{kind}{learner}/{opponent}") for kind in (_GAMES, _SCORE))
    played, mean = count[row] if count else None, score[row] if score else None
    if played and mean is not None:
        step = int(run.metrics.steps[row])
        result = (mean * (played + 1) - 0.5) / played
        for _ in range(round(played)):
            yield _name(learner, step), _opponent(opponent, step), result


def _opponent(name: str, step: int) -> str:
    """An opponent that was met at a step: a snapshot, or a bot, whose name stays as it is."""
    learner, at, when = name.rpartition("@")
    known = {"now": step, "start": 0}
    return _name(learner, known[when]) if at and when in known else name


def _name(learner: str, step: int) -> str:
    """A learner as it was at a step; 0 is its start."""
    return f"{learner}@{step}"

"""The measures of a study besides gold, on cases whose results are known."""

from __future__ import annotations

import math
import random

import pytest

from interplay.config import parse
from interplay.publishing.experiment import switches
from interplay.publishing.measures import drift, preference, recovery, win_rate


def test_win_rate_and_preference_compare_the_same_tasks_alone() -> None:
    ours, theirs = {"a": 1.0, "b": 0.0, "c": 5.0}, {"a": 0.0, "b": 0.0, "d": 9.0}
    assert win_rate(ours, theirs) == 0.75  # a win and a tie
    assert preference(ours, theirs, 1.0) == pytest.approx((1 / (1 + math.exp(-1)) + 0.5) / 2)
    assert math.isnan(win_rate({"a": 1.0}, {"b": 1.0}))


def test_noise_alone_is_no_drift_and_a_moving_level_is() -> None:
    """Over 50 series: noise with deviation 1 alone gives almost no drift; a level that moves by ±1 gives about 1."""
    rng = random.Random(0)

    def series(level: float) -> list[float]:
        return [rng.gauss(level if step // 10 % 2 else -level, 1.0) for step in range(200)]

    still = [drift(series(0.0)) for _ in range(50)]
    moving = [drift(series(1.0)) for _ in range(50)]
    assert sum(still) / 50 < 0.2 < 0.9 < sum(moving) / 50 < 1.1
    assert math.isnan(drift([1.0] * 9))  # fewer than two windows


def test_the_steps_to_recover_are_counted_and_a_lasting_loss_is_said() -> None:
    back = [1.0] * 10 + [0.0] * 4 + [1.0] * 6
    assert recovery(back, [10]) == [4]
    assert recovery([1.0] * 20, [10]) == [0]
    assert recovery([1.0] * 10 + [0.5] * 10, [10]) == [None]
    assert recovery(back + [0.0] * 5, [10, 20]) == [4, None]  # the second switch ends the time of the first
    assert recovery(back, [1]) == recovery(back, [19]) == []  # there are too few values before or after


def test_switches_are_the_steps_in_which_other_partners_take_over() -> None:
    data = {
        "name": "x", "algorithm": {"name": "rloo"}, "env": {"name": "story"}, "policies": {"learner": {"base": "tiny"}},
        "seats": {"learner": "learner", "partner": "bot:writer:plain"},
        "matchups": [{"share": [[0, 0.0], [3, 1.0]], "period": 6, "seats": {"partner": "bot:writer:liar"}}],
    }  # fmt: skip
    assert switches(parse(data), 14) == [3, 6, 9, 12]
    assert switches(parse({**data, "matchups": []}), 14) == []

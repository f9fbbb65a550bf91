"""Confidence intervals against published numbers and against SciPy."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy.stats import binomtest

from interplay.evaluation import intervals


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        (10, 10, 0.7225, 1.0),
        (0, 10, 0.0, 0.2775),
        (50, 100, 0.4038, 0.5962),
        (1, 2, 0.0945, 0.9055),
        (9, 10, 0.5958, 0.9821),
        (0, 0, 0.0, 1.0),
        (950, 1000, 0.9347, 0.9619),
    ],
)
def test_wilson(hits: int, total: int, low: float, high: float) -> None:
    assert intervals.wilson(hits, total) == pytest.approx((low, high), abs=5e-5)


def test_wilson_is_scipys_for_whole_numbers() -> None:
    """Both are a few operations on doubles, each good to 1e-16."""
    for hits, total in ((0, 1), (1, 1), (3, 7), (17, 40), (0, 500), (499, 500)):
        found = binomtest(hits, total).proportion_ci(method="wilson")
        assert intervals.wilson(hits, total) == pytest.approx((found.low, found.high), abs=1e-14)


def test_wilson_stays_within_0_and_1_and_holds_the_share() -> None:
    for total in (1, 3, 17, 500):
        for hits in range(total + 1):
            low, high = intervals.wilson(hits, total)
            assert 0.0 <= low <= hits / total + 1e-12 and hits / total - 1e-12 <= high <= 1.0


def test_wilson_is_symmetric_and_shrinks() -> None:
    low, high = intervals.wilson(3, 10)
    assert intervals.wilson(7, 10) == pytest.approx((1 - high, 1 - low))
    widths = [high - low for low, high in (intervals.wilson(n // 2, n) for n in (10, 100, 1000))]
    assert widths == sorted(widths, reverse=True)


def test_mean_by_hand() -> None:
    """1, 2, 3: mean 2, sample deviation 1, half width 4.3027/√3, Student's t with two degrees of freedom, which is
    tabulated to four digits."""
    centre, low, high = intervals.mean([1.0, 2.0, 3.0])
    expected = (2.0, 2 - 4.3027 / math.sqrt(3), 2 + 4.3027 / math.sqrt(3))
    assert (centre, low, high) == pytest.approx(expected, abs=5e-5)


def test_students_t_as_tabulated() -> None:
    known = {1: 12.7062, 5: 2.5706, 9: 2.2622, 10: 2.2281, 12: 2.1788, 20: 2.0860, 60: 2.0003}
    for freedom, t in known.items():
        values = [float(i % 3) for i in range(freedom + 1)]
        centre, low, high = intervals.mean(values)
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert ((centre - low) / error, (high - centre) / error) == pytest.approx((t, t), abs=5e-5)


def test_one_value_says_nothing_about_the_spread() -> None:
    assert intervals.mean([2.0]) == (2.0, -math.inf, math.inf)


def test_equal_values_leave_no_doubt() -> None:
    assert intervals.mean([0.1] * 10) == pytest.approx((0.1, 0.1, 0.1))


def test_a_share_over_tasks_is_wilsons_where_each_has_one_game() -> None:
    found = intervals.share([[True]] * 9 + [[False]])
    assert (found.value, found.low, found.high) == pytest.approx((0.9, 0.5958, 0.9821), abs=1e-4)


def test_games_of_one_task_that_all_agree_say_no_more_than_one() -> None:
    """Ten tasks with four equal games each are as uncertain as ten games; games that differ at random nearly as
    forty."""
    alike = intervals.share([[i < 5] * 4 for i in range(10)])
    assert alike[1:] == pytest.approx(intervals.wilson(5, 10))
    mixed = intervals.share([[True, False, True, False]] * 10)
    assert mixed[1:] == pytest.approx(intervals.wilson(20, 40))
    assert intervals.share([[True] * 4] * 10)[1:] == pytest.approx(intervals.wilson(10, 10))


def test_intervals_of_clustered_games_hold_the_truth() -> None:
    """Tasks of different difficulty, four games each: 95% of the intervals should contain the mean difficulty, 0.5."""
    rng = random.Random(0)
    held = []
    for _ in range(300):
        hard = [rng.random() for _ in range(40)]
        low, high = intervals.share([[rng.random() < p for _ in range(4)] for p in hard])[1:]
        held.append(low <= 0.5 <= high)
    assert 0.91 < sum(held) / 300 < 0.99


def test_the_bootstrap_covers_and_repeats() -> None:
    rng = random.Random(1)
    samples = [[rng.gauss(2.0, 1.0) for _ in range(50)] for _ in range(100)]
    found = [intervals.bootstrap(s, resamples=400) for s in samples]
    assert 0.87 < sum(e.low <= 2.0 <= e.high for e in found) / 100 <= 1.0
    assert intervals.bootstrap(samples[0]) == intervals.bootstrap(samples[0])
    centre, low, high = intervals.mean(samples[0])
    again = intervals.bootstrap(samples[0])
    assert again == pytest.approx((centre, low, high), abs=0.08)
    assert intervals.bootstrap([3.0]) == (3.0, -math.inf, math.inf)

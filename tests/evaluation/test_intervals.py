"""Confidence intervals against published numbers."""

from __future__ import annotations

import math

import pytest

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
    """1, 2, 3: mean 2, sample deviation 1, half width 1.96/√3."""
    centre, low, high = intervals.mean([1.0, 2.0, 3.0])
    assert (centre, low, high) == pytest.approx((2.0, 2 - 1.959964 / math.sqrt(3), 2 + 1.959964 / math.sqrt(3)))


def test_one_value_says_nothing_about_the_spread() -> None:
    assert intervals.mean([2.0]) == (2.0, -math.inf, math.inf)


def test_equal_values_leave_no_doubt() -> None:
    assert intervals.mean([0.1] * 10) == pytest.approx((0.1, 0.1, 0.1))

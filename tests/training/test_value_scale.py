"""The scale that MAPPO's critic follows."""

from __future__ import annotations

import math

import pytest
from torch import nn

from interplay.training.value_scale import ValueScale


def test_the_scale_is_the_mean_and_deviation_of_late_returns() -> None:
    """After one step it is exactly its mean and deviation. Then the newest step has weight 1 − 0.99."""
    scale, head = ValueScale(), nn.Linear(2, 1)
    assert (scale.mean, scale.deviation) == (0.0, 1.0)
    scale.follow([1.0, 5.0], head)
    assert (scale.mean, scale.deviation) == pytest.approx((3.0, 2.0))
    scale.follow([7.0, 7.0], head)
    old = 0.99 / 1.99
    mean = old * 3 + (1 - old) * 7
    assert scale.mean == pytest.approx(mean)
    assert scale.deviation == pytest.approx(math.sqrt(old * 13 + (1 - old) * 49 - mean**2))
    assert scale.outer(scale.inner(12.5)) == pytest.approx(12.5)
    equal = ValueScale()
    equal.follow([4.0] * 3, head)
    assert equal.deviation == 0.1, "equal returns are not blown up"

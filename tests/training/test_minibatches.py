"""The weight of a token in an optimiser step."""

from __future__ import annotations

import math

import pytest

from interplay.training.minibatches import token_weights
from interplay.training.tries import Example
from interplay.types import Sample


def example(name: str, tokens: int, share: float = 1.0) -> Example:
    sample = Sample(name, (1, 2), (3,) * tokens, (-1.0,) * tokens, (0,) * tokens, "")
    return Example("player", sample, 1.0, share=share)


@pytest.mark.parametrize("average", ["token", "turn", 16])
def test_replies_that_stand_for_one_sample_weigh_as_much_as_one(average: str | int) -> None:
    """Two and eight replies of three tokens, each set for one decision: both decisions weigh as much as a sample of
    three tokens."""
    two = [example(f"a{i}", 3, 1 / 2) for i in range(2)]
    eight = [example(f"b{i}", 3, 1 / 8) for i in range(8)]
    weights = token_weights([*two, *eight, example("c", 3)], average)
    whole = [math.fsum(3 * weights[e.sample.id] for e in part) for part in (two, eight, [example("c", 3)])]
    assert whole == pytest.approx([whole[2]] * 3, rel=1e-12)
    assert math.fsum(whole) == pytest.approx(1.0 if isinstance(average, str) else 3 / 16, rel=1e-12)

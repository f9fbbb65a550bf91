"""The benchmark of rounding: one rounding loses less of an adapter's first update than two."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import torch


def test_one_rounding_keeps_more_of_the_first_update_than_two(load_script: Callable[[str], ModuleType]) -> None:
    torch.manual_seed(0)
    adapted = load_script("benchmarks/rounding.py").Adapted("tiny")
    with torch.no_grad():
        start, rounded = adapted.logprobs("exact"), adapted.logprobs("base")
    adapted.step(5e-5)
    with torch.no_grad():
        exact, once, twice = (adapted.logprobs(way) for way in ("exact", "once", "twice"))
    change = (exact - start).mean()
    kept = [float((way - rounded).mean() / change) for way in (once, twice)]
    assert abs(kept[0] - 1) < 0.25 and kept[1] < 0.75, kept

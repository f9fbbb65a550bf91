"""For tests of the viewer in this process."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

from interplay.viewer import gold, index
from interplay.viewer import run as runs


@pytest.fixture(autouse=True)
def clock_of_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The viewer looks through files for a fraction of a second, and goes on at the next question. A busy machine would
    find less in this time. So a microsecond passes here whenever the viewer looks at the clock, and no other time."""
    ticks = itertools.count()
    clock = SimpleNamespace(**vars(time) | {"monotonic": lambda: next(ticks) / 1e6})
    for module in (gold, index, runs):
        monkeypatch.setattr(module, "time", clock)

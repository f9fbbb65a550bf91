"""The idle share of workers."""

from __future__ import annotations

import itertools
import math

import pytest

from interplay.distributed.busy import BusyTime


def test_a_worker_is_idle_while_it_has_no_work_and_overlapping_work_counts_once() -> None:
    clock = 0.0
    busy = BusyTime(2, lambda: clock)
    with busy.at_work(0):
        clock = 2.0
        with busy.at_work(0):
            clock = 4.0
        clock = 5.0
    clock = 10.0
    assert busy.idle() == pytest.approx([0.5, 1.0])
    with busy.at_work(1):  # a second interval counts on its own, also with work that has not ended
        clock = 14.0
        assert busy.idle() == pytest.approx([1.0, 0.0])


def test_a_worker_that_is_always_busy_is_never_idle_for_less_than_nothing() -> None:
    ticks = itertools.count()  # the clock goes on between any two readings, by ever less
    busy = BusyTime(3, lambda: math.sqrt(next(ticks)))
    with busy.at_work(0), busy.at_work(2):
        for _ in range(3):
            assert all(0 <= share <= 1 for share in busy.idle())

"""The idle share of workers."""

from __future__ import annotations

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

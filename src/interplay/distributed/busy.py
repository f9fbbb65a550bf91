"""Measures how long each of several workers has nothing to do. Does not import ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class BusyTime:
    """A worker is busy while at least one piece of work that it was sent is not finished."""

    def __init__(self, workers: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._work = [0] * workers  # pieces that are not finished
        self._busy = [0.0] * workers  # seconds since the last call of `idle`
        self._began = now()
        self._changed = [self._began] * workers  # when the two lists were last brought up to date

    @contextmanager
    def at_work(self, worker: int) -> Iterator[None]:
        """Inside, the worker has one more piece of work."""
        self._count(worker, 1, self._now())
        try:
            yield
        finally:
            self._count(worker, -1, self._now())

    def idle(self) -> list[float]:
        """The share of the time since the last call in which each worker had nothing to do."""
        now = self._now()  # read once, so that no busy time is longer than the whole time
        for worker in range(len(self._work)):
            self._count(worker, 0, now)
        whole = max(now - self._began, 1e-9)
        out = [1.0 - busy / whole for busy in self._busy]
        self._busy, self._began = [0.0] * len(self._work), now
        return out

    def _count(self, worker: int, change: int, now: float) -> None:
        if self._work[worker]:
            self._busy[worker] += now - self._changed[worker]
        self._changed[worker] = now
        self._work[worker] += change

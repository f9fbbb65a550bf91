"""Run Python's garbage collector less often while episodes are played.

There are many turns, they live until they are trained on, and they have almost no reference cycles. With Python's
default threshold, the collector went through all of them every 700 objects, which took a third of the rollout time of a
tiny model. The threshold is set for the whole process. It is raised when the first run begins, in any thread, and reset
when the last one ends.
"""

from __future__ import annotations

import gc
import threading

_LEAST = 100_000


class _RareCollections:
    def __init__(self) -> None:
        self._lock, self._runs, self._before = threading.Lock(), 0, gc.get_threshold()

    def __enter__(self) -> None:
        with self._lock:
            self._runs += 1
            if self._runs == 1:
                self._before = gc.get_threshold()
                if self._before[0]:
                    gc.set_threshold(max(self._before[0], _LEAST), *self._before[1:])

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._runs -= 1
            if not self._runs:
                gc.set_threshold(*self._before)


rare_collections = _RareCollections()

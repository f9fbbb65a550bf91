"""Run Python's garbage collector less often while episodes are played, and while large libraries are imported.

There are many turns, they live until they are trained on, and they have almost no reference cycles. With Python's
default threshold, the collector went through all of them every 700 objects, which took a third of the rollout time of a
tiny model. The threshold is set for the whole process. It is raised when the first run begins, in any thread, and reset
when the last one ends.
"""

from __future__ import annotations

import atexit
import gc
import importlib
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


def load_libraries() -> None:
    """Import PyTorch and Transformers. The objects that they create live as long as the process, and searching through
    them again and again took the garbage collector a seventh of the time. So it rarely runs during the import, and
    later it skips these objects."""
    with rare_collections:
        importlib.import_module("transformers.models.auto.modeling_auto")  # this also imports torch
    gc.freeze()
    atexit.register(gc.unfreeze)  # else Triton's bindings print at the exit that objects were not freed

"""Ends what environments leave when they are collected as garbage.

The collector can run at any moment, also in a thread that holds a lock. A finalizer that takes the same lock would wait
for ever. So finalizers only put jobs into a queue, which needs no lock, and a thread does the jobs.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

_Job = Callable[[], object]

log = logging.getLogger("interplay")
_queues: dict[int, SimpleQueue[_Job]] = {}  # by process id, because a forked process does not have its parent's thread
_exiting: list[bool] = []


def begin() -> None:
    """Start the thread, if this process has none. Call this where a finalizer is made. A finalizer must not call it."""
    if os.getpid() not in _queues:
        queue = _queues[os.getpid()] = SimpleQueue[_Job]()
        threading.Thread(target=_work, args=(queue,), name="ending", daemon=True).start()
        atexit.register(_exiting.append, True)


def later(job: _Job) -> None:
    """Do a job soon, on another thread. If the interpreter is ending, do it now: the thread may not run again."""
    queue = _queues.get(os.getpid())
    if _exiting or queue is None:
        _do(job)
    else:
        queue.put(job)


def _work(queue: SimpleQueue[_Job]) -> None:
    while True:
        _do(queue.get())


def _do(job: _Job) -> None:
    try:
        job()
    except Exception:  # nobody waits for the result, and the next jobs must still be done
        log.warning("a program that is not used any more could not be ended", exc_info=True)

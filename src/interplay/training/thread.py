"""The learner's own thread, so that a training step never blocks the event loop.

It is a daemon thread: a second Ctrl-C ends the program at once, even during a step. The newest checkpoint stays
complete.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LearnerThread:
    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="interplay-learner", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, done = job
            try:
                done.set_result(work())
            except BaseException as error:  # `do` raises it when the caller awaits the result
                done.set_exception(error)

    async def do(self, work: Callable[[], T]) -> T:
        """Run `work` on the learner's thread and return its result. If the caller is cancelled, `work` goes on."""
        done: Future[T] = Future()
        self._work.put((work, done))
        return await asyncio.shield(asyncio.wrap_future(done))

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(timeout=1)  # it is idle, unless an error ended the run during a step

"""Runs work that needs its own event loop, even if one is already running (for example in a notebook)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")
_WAIT = 0.2  # seconds between two checks for Ctrl-C


def finished(work: Callable[[], T], interrupted: Callable[[], None] | None = None) -> T:
    """Run `work` and return its result. If an event loop is running in this thread, `work` runs in another thread.
    `interrupted` is called when the user interrupts the notebook cell; `work` must then end soon."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # `done.result()` raises it in the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=run, name="interplay", daemon=True)
    thread.start()
    while thread.is_alive():
        try:
            thread.join(_WAIT)
        except KeyboardInterrupt:
            if interrupted is None:
                raise
            interrupted()
    return done.result()

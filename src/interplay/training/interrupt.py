"""Signals that end a run early: Ctrl-C, SIGTERM, and SIGUSR1, which schedulers send before a time limit.

After the first signal the run finishes work that must not be interrupted, writes a checkpoint and ends. A second
Ctrl-C ends the run at once. Programs that start a run, such as `timeout -s INT`, may send the same signal twice, or
several signals together, and these may arrive in any order. So a second Ctrl-C counts only if a Ctrl-C came before,
and only after `_APART` seconds.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
_APART = 0.5  # seconds between two presses of Ctrl-C by a person


def ignore_signals() -> None:
    """Ignore these signals, in a process that belongs to a run. A terminal, `timeout` and Slurm send them to all
    processes of a job. The run's own process decides what to do, and needs the others to write a checkpoint."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Interrupted(Exception):
    """A signal ended work whose partial results are not kept."""


class Interrupt:
    def __init__(self) -> None:
        self.asked = False
        self._pressed: float | None = None  # when the first Ctrl-C came
        self._work: asyncio.Future[Any] | None = None

    @contextmanager
    def heard(self, keyboard: bool = True) -> Iterator[None]:
        """Handle the signals inside this context; without `keyboard`, all but Ctrl-C."""
        numbers = [number for number in _SIGNALS if keyboard or number != signal.SIGINT]
        try:
            before = {number: signal.signal(number, self._handle) for number in numbers}
        except ValueError:  # not in the main thread: the caller handles signals
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT:
            now = time.monotonic()
            if self._pressed is not None and now - self._pressed > _APART:
                raise KeyboardInterrupt
            self._pressed = self._pressed or now
        self.ask()

    def ask(self) -> None:
        """Ask the run to end, as a signal does; from any thread."""
        self.asked = True
        if self._work is not None:
            self._work.get_loop().call_soon_threadsafe(self._work.cancel)

    async def ends(self, work: Awaitable[T]) -> T | None:
        """The result of the work, or None if a signal ended it. Only for work that changes nothing until it is done."""
        self._work = future = asyncio.ensure_future(work)
        if self.asked:
            future.cancel()
        try:
            return await future
        except asyncio.CancelledError:
            return None
        finally:
            self._work = None

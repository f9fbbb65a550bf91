"""Ctrl-C: the first ends a run after the work that must not be cut in half, the second at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupt:
    def __init__(self) -> None:
        self.asked = False
        self._work: asyncio.Future[Any] | None = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Ctrl-C is answered here for as long as this lasts."""
        try:
            before = signal.signal(signal.SIGINT, self._handle)
        except ValueError:  # not the main thread: whoever runs us handles signals
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._work is not None:
            self._work.get_loop().call_soon_threadsafe(self._work.cancel)

    async def ends(self, work: Awaitable[T]) -> T | None:
        """What the work comes to, or None where Ctrl-C ended it: for work that changes nothing before it is done."""
        self._work = future = asyncio.ensure_future(work)
        try:
            return await future
        except asyncio.CancelledError:
            return None
        finally:
            self._work = None

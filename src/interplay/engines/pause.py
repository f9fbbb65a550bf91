"""A pause of the rollout stream. Meanwhile its episodes send no requests, and time does not count for their limits.

Which pause applies to a request depends on the asyncio task that sends it: `applies` is called in the tasks of the
stream. The requests of others, such as an evaluation, neither wait for the end of a pause nor delay its beginning.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TypeVar

from interplay.engines.census import census

T = TypeVar("T")


class Pause:
    def __init__(self) -> None:
        self._over, self._quiet = asyncio.Event(), asyncio.Event()
        self._over.set()
        self._quiet.set()
        self._asking = 0  # requests of the stream that are not answered yet
        self._limits: dict[asyncio.Timeout, float] = {}  # time limits, and what was left of them when the pause began
        self._before = 0.0  # length of earlier pauses
        self._began = 0.0

    @property
    def on(self) -> bool:
        return not self._over.is_set()

    @property
    def seconds(self) -> float:
        """The length of all pauses so far."""
        return self._before + (time.monotonic() - self._began if self.on else 0.0)

    def applies(self) -> None:
        """From now on, the running task and the tasks that it starts make no requests during a pause."""
        _HERE.set(self)

    async def over(self) -> None:
        while self.on:
            await census().elsewhere(self._over.wait())

    async def ask(self, request: Callable[[], Awaitable[T]]) -> T:
        if self.on:
            await self.over()
        self._asking += 1
        self._quiet.clear()
        try:
            return await request()
        finally:
            self._asking -= 1
            if not self._asking:
                self._quiet.set()

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Pause; the context begins when all open requests have been answered."""
        loop = asyncio.get_running_loop()
        self._over.clear()
        self._began = time.monotonic()
        for limit in [x for x in self._limits if not x.expired()]:
            self._limits[limit] = (limit.when() or loop.time()) - loop.time()
            limit.reschedule(None)
        try:
            await self._quiet.wait()
            yield
        finally:
            self._before = self.seconds
            self._over.set()
            for limit in [x for x in self._limits if not x.expired()]:
                limit.reschedule(loop.time() + self._limits[limit])

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[None]:
        """Raise a TimeoutError after this many seconds, not counting pauses."""
        async with asyncio.timeout(None if self.on else seconds) as limit:
            self._limits[limit] = seconds
            try:
                yield
            finally:
                del self._limits[limit]


_HERE: ContextVar[Pause | None] = ContextVar("pause", default=None)


async def pausable(request: Callable[[], Awaitable[T]]) -> T:
    """The answer to a request of an agent or a judge. If a pause applies to it, it is sent after the pause."""
    pause = _HERE.get()
    return await (request() if pause is None else pause.ask(request))

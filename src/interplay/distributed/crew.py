"""Ray actors of one kind. A lost actor is replaced by a new one, and its unfinished work is done again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from interplay.distributed.connection import first_line, losses, refusal
from interplay.errors import EngineError

log = logging.getLogger("interplay")
T = TypeVar("T")


class Crew:
    """`what` names the kind in messages. `start` starts an actor, and `welcome(index)` is awaited before a replacement
    is used."""

    def __init__(
        self, ray: Any, what: str, count: int, start: Callable[[], Any], welcome: Callable[[int], Awaitable[None]]
    ) -> None:
        self.ray, self.what, self._start, self._welcome = ray, what, start, welcome
        self.lost = 0  # actors that were replaced
        self.actors = [start() for _ in range(count)]
        self._repairing: dict[int, asyncio.Lock] = {}
        self._lost: tuple[type[Exception], ...] = (*losses(ray), TimeoutError)

    async def do(self, index: int, work: Callable[[Any], Awaitable[T]], restarts: int) -> T:
        """Do `work` with an actor. If the actor is lost, start a new one and do the work again, at most `restarts`
        times. A new one is not asked anything before it was welcomed: it may need long to start, and somebody who asks
        it meanwhile would take it for lost."""
        for left in reversed(range(restarts + 1)):
            async with self._repair(index):
                actor = self.actors[index]
            try:
                return await work(actor)
            except self._lost as error:
                if refused := refusal(error):
                    raise refused from None  # another one would be refused too
                if not left:
                    raise EngineError(
                        f"{self.what} {index} was lost {restarts + 1} times (cluster.restarts): "
                        f"{first_line(error).rstrip('.')}; look for the cause in Ray's logs, or raise cluster.restarts."
                    ) from None
                await self._replace(index, actor, error)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
        raise AssertionError  # the loop returns or raises

    def _repair(self, index: int) -> asyncio.Lock:
        """The lock that is held while an actor is replaced."""
        return self._repairing.setdefault(index, asyncio.Lock())

    async def _replace(self, index: int, actor: Any, error: Exception) -> None:
        """Start a new actor in place of `actor`, unless it was already replaced."""
        async with self._repair(index):
            if self.actors[index] is not actor:
                return
            log.warning("%s %d was lost (%s); another one takes its place", self.what, index, first_line(error))
            self.lost += 1
            self.ray.kill(actor)
            new = self.actors[index] = self._start()
            try:
                await self._welcome(index)
            except self._lost:  # it must not be used without its weights; whoever asks it next replaces it too
                self.ray.kill(new)

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)

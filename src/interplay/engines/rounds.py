"""Whatever answers in batches takes its steps in rounds, so that no batch depends on which thread was faster.

A round: the event loop settles until nobody asks for more; every service with work takes one step, each on its own
thread; then all answers are handed out together, in a fixed order. Requests that come meanwhile wait for the next.
While one service alone has work, it goes on until it has an answer: before that, nobody could ask for more.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

Q = TypeVar("Q")
A = TypeVar("A")
_QUIET_CYCLES = 7  # from an answer to the first request of a playout that it began: tasks that begin tasks


class Service(Protocol):
    @property
    def thread(self) -> Executor | None:
        """Where its steps run; None is the event loop's own pool."""
        ...

    @property
    def queued(self) -> int:
        """Requests that have not been taken yet."""
        ...

    @property
    def busy(self) -> bool: ...

    def take(self) -> None:
        """On the event loop: what is queued now belongs to the next step."""
        ...

    def step(self) -> list[Callable[[], None]]:
        """On its thread: one batch. What it returns hands out the answers, on the event loop."""
        ...

    def fail(self, error: Exception) -> None:
        """The step raised: tell everybody who waits."""
        ...


class Rounds:
    def __init__(self) -> None:
        self._services: list[Service] = []
        self._task: asyncio.Task[None] | None = None

    def serve(self, service: Service) -> None:
        """`service` has a request: rounds go on until nobody has."""
        if service not in self._services:
            self._services.append(service)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._settle()
            busy = [s for s in self._services if s.busy]
            if not busy:
                return
            for service in busy:
                service.take()
            work = _until_an_answer if len(busy) == 1 else _one_step
            steps = [loop.run_in_executor(s.thread, work, s) for s in busy]
            for service, result in zip(busy, await asyncio.gather(*steps, return_exceptions=True), strict=True):
                if isinstance(result, Exception):
                    service.fail(result)
                elif isinstance(result, BaseException):
                    raise result
                else:
                    for answer in result:
                        answer()

    async def _settle(self) -> None:
        quiet, before = 0, -1
        while quiet < _QUIET_CYCLES:
            now = sum(s.queued for s in self._services)
            quiet, before = (quiet + 1 if now == before else 0), now
            await asyncio.sleep(0)


def _one_step(service: Service) -> list[Callable[[], None]]:
    return service.step()


def _until_an_answer(service: Service) -> list[Callable[[], None]]:
    answers = service.step()
    while not answers and service.busy and not service.queued:
        answers = service.step()
    return answers


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Rounds] = WeakKeyDictionary()


def rounds() -> Rounds:
    """Those of the running event loop."""
    return _HERE.setdefault(asyncio.get_running_loop(), Rounds())


class Desk(ABC, Generic[Q, A]):
    """A service that answers everything that waits in one step: a subclass says how, and in which order."""

    thread: Executor | None = None

    def __init__(self) -> None:
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._taken: list[tuple[Q, asyncio.Future[A]]] = []

    @abstractmethod
    def rank(self, question: Q) -> Any:
        """What the questions of a round are sorted by; equal ones stay as they came."""

    @abstractmethod
    def answers(self, questions: Sequence[Q]) -> Sequence[A | Exception]:
        """One for each, on the service's thread."""

    @abstractmethod
    def broken(self, error: Exception) -> Exception:
        """What everybody is told where `answers` itself raised."""

    async def ask(self, question: Q) -> A:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        rounds().serve(self)
        return await future

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def take(self) -> None:
        self._taken, self._waiting = sorted(self._waiting, key=lambda pair: self.rank(pair[0])), []

    def step(self) -> list[Callable[[], None]]:
        found = self.answers([question for question, _ in self._taken])
        return [partial(_hand_out, future, answer) for (_, future), answer in zip(self._taken, found, strict=True)]

    def fail(self, error: Exception) -> None:
        for _, future in self._taken:
            _hand_out(future, self.broken(error))


def _hand_out(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():  # whoever asked is gone
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)

"""Who can still send a request before the next answer.

A batch should hold every request that is ready, and with `deterministic` it must not depend on which thread was faster.
So whatever answers in batches (an engine, a critic, the tools) is a service of the census, and everything that may send
requests is an actor in it: an episode's line of play, the sampling of one candidate, a playout. The census counts the
actors that are at work. When none is, all of them wait for answers, and nobody could ask for more: every service with
work takes one step, each on its own thread, and then all answers are handed out together, in a fixed order.

Without `deterministic` every service takes its steps as soon as it has work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
_MOMENT = 0.005  # seconds
_ACTING: ContextVar[bool] = ContextVar("acting", default=False)  # whether the running task is counted


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


@dataclass
class _Group:
    """Actors that are waited for together: how many are left, and how many other actors wait for them."""

    left: int = 1
    waiting: int = 0


@dataclass
class _Actor:
    group: _Group
    begun: bool = False


class Census:
    """The actors and services of one event loop."""

    def __init__(self) -> None:
        self.deterministic = True
        self.active = 0  # actors at work: not waiting for an answer, nor for other actors
        self._services: list[Service] = []
        self._waiting: set[asyncio.Future[Any]] = set()  # answers that an actor waits for
        self._groups: WeakKeyDictionary[asyncio.Task[Any], _Group] = WeakKeyDictionary()
        self._pacers: dict[Service | None, asyncio.Task[None]] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    # -- actors ---------------------------------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, T], group: _Group | None = None) -> asyncio.Task[T]:
        """Start an actor of its own."""
        self._more(1)
        actor = _Actor(group or _Group())
        task = asyncio.get_running_loop().create_task(self._acted(work, actor))

        def skipped(_: object) -> None:
            if not actor.begun:  # it was cancelled before it ran
                work.close()
                self._ended(actor)

        task.add_done_callback(skipped)
        self._groups[task] = actor.group
        return task

    async def _acted(self, work: Coroutine[Any, Any, T], actor: _Actor) -> T:
        actor.begun = True
        _ACTING.set(True)
        try:
            return await work
        finally:
            self._ended(actor)

    def _ended(self, actor: _Actor) -> None:
        group = actor.group
        group.left -= 1
        self._more(group.waiting - 1 if group.left == 0 else -1)  # those who wait for all of the group go on
        if group.left == 0:
            group.waiting = 0

    async def join(self, task: asyncio.Task[T]) -> T:
        """What an actor that was begun alone comes to."""
        group = self._groups.get(task)
        if _ACTING.get() and group is not None and group.left:
            group.waiting += 1
            self._more(-1)
        return await task

    async def gather(self, jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Every job's result or exception; each job is an actor, and the caller waits for all of them."""
        work = list(jobs)
        group = _Group(len(work))
        tasks = [self.begin(job, group) for job in work]
        if _ACTING.get() and tasks:
            group.waiting += 1
            self._more(-1)
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    async def outside(self, work: Awaitable[T]) -> T:
        """Wait for something that is no service: a slow environment, a program. With `deterministic` everybody waits
        for it; without, the others go on meanwhile."""
        return await work if self.deterministic else await self.elsewhere(work)

    async def elsewhere(self, work: Awaitable[T]) -> T:
        """Wait for something outside while the others go on, such as a remote model."""
        if not _ACTING.get():
            return await work
        self._more(-1)
        try:
            return await work
        finally:
            self._more(1)

    def _more(self, change: int) -> None:
        self.active += change
        if self.active <= 0:
            self._quiet.set()
        else:
            self._quiet.clear()

    # -- questions and answers ------------------------------------------------------------------------------------

    async def answer(self, service: Service, future: asyncio.Future[T]) -> T:
        """Wait for an answer of `service`, which has the question already."""
        self._serve(service)
        if not _ACTING.get():
            return await future
        self._waiting.add(future)
        self._more(-1)
        try:
            return await future
        finally:
            if future in self._waiting:  # nobody answered: the one who asked was cancelled
                self._waiting.discard(future)
                self._more(1)

    def deliver(self, future: asyncio.Future[T], answer: T | BaseException) -> None:
        """Hand out an answer; an exception is raised where it is awaited."""
        if future in self._waiting:
            self._waiting.discard(future)
            self._more(1)
        if future.done():  # whoever asked is gone
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    # -- services -------------------------------------------------------------------------------------------------

    def _serve(self, service: Service) -> None:
        """`service` has a question: it takes steps until it has none."""
        if service not in self._services:
            self._services.append(service)
        key = None if self.deterministic else service
        pacer = self._pacers.get(key)
        if pacer is None or pacer.done():
            work = self._together() if key is None else self._alone(service)
            self._pacers[key] = asyncio.get_running_loop().create_task(work)

    async def _together(self) -> None:
        while True:
            await asyncio.sleep(0)  # whoever was started in the same moment asks first
            while self.active > 0:
                await self._quiet.wait()
            busy = [s for s in self._services if s.busy]
            if not busy:
                return
            for service in busy:
                service.take()
            work = _until_an_answer if len(busy) == 1 else _one_step
            await self._step(busy, work)

    async def _alone(self, service: Service) -> None:
        while service.busy:
            if self.active > 0:  # whoever is about to ask joins this step; nobody is waited for longer
                with suppress(TimeoutError):
                    async with asyncio.timeout(_MOMENT):
                        await self._quiet.wait()
            service.take()
            await self._step([service], _one_step)

    async def _step(self, busy: Sequence[Service], work: Callable[[Service], list[Callable[[], None]]]) -> None:
        loop = asyncio.get_running_loop()
        steps = [loop.run_in_executor(s.thread, work, s) for s in busy]
        for service, result in zip(busy, await asyncio.gather(*steps, return_exceptions=True), strict=True):
            if isinstance(result, Exception):
                service.fail(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                for answer in result:
                    answer()


def _one_step(service: Service) -> list[Callable[[], None]]:
    return service.step()


def _until_an_answer(service: Service) -> list[Callable[[], None]]:
    """Before somebody is answered, nobody could ask for more."""
    answers = service.step()
    while not answers and service.busy and not service.queued:
        answers = service.step()
    return answers


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Census] = WeakKeyDictionary()


def census() -> Census:
    """That of the running event loop."""
    return _HERE.setdefault(asyncio.get_running_loop(), Census())


def deliver(future: asyncio.Future[T], answer: T | BaseException) -> None:
    """Hand out an answer on the event loop that waits for it; an exception is raised where it is awaited."""
    found = _HERE.get(future.get_loop())
    (found or Census()).deliver(future, answer)

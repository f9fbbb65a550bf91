"""Counts who can still send a request, to decide when services take their next step.

A batch should hold every request that is ready, and with `deterministic` it must not depend on which thread was faster.
So everything that answers in batches (an engine, a critic, the tools) is a service, and everything that may send
requests is an actor: an episode's line of play, the sampling of one candidate, a playout. The census counts the actors
at work. When the count is 0, all actors wait for answers and no further request can come. Then every service with work
takes one step, each on its own thread, and all answers are delivered together, in a fixed order.

Without `deterministic`, every service takes a step as soon as it has work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
_Answers = list[Callable[[], None]]  # functions that deliver the answers of a step
_MOMENT = 0.005  # seconds that a step waits for requests that are about to come
_ACTING: ContextVar[bool] = ContextVar("acting", default=False)  # whether the running task is counted


class Service(Protocol):
    @property
    def thread(self) -> Executor | None:
        """The executor that runs its steps; None is the event loop's default executor."""
        ...

    @property
    def queued(self) -> int:
        """The number of requests that no step has taken yet."""
        ...

    @property
    def busy(self) -> bool: ...

    def take(self) -> None:
        """Called on the event loop: assign all queued requests to the next step."""
        ...

    def step(self) -> _Answers:
        """Called on the service's thread: compute one batch. The returned functions deliver the answers and are called
        on the event loop."""
        ...

    def fail(self, error: Exception) -> None:
        """Called when a step raised: pass the error to all waiting requests."""
        ...


@dataclass
class _Group:
    """Actors that others wait for together: how many are not done yet, and how many other actors wait for them."""

    left: int = 1
    waiting: int = 0


@dataclass
class _Actor:
    group: _Group
    begun: bool = False


_Work = Callable[[Service, threading.Event], _Answers]


class Census:
    """The actors and services of one event loop."""

    def __init__(self) -> None:
        self.deterministic = True
        self.active = 0  # actors at work: they wait neither for an answer nor for other actors
        self._services: list[Service] = []
        self._waiting: set[asyncio.Future[Any]] = set()  # answers that an actor waits for
        self._groups: WeakKeyDictionary[asyncio.Task[Any], _Group] = WeakKeyDictionary()
        self._pacers: dict[Service | None, asyncio.Task[None]] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()

    # -- actors ---------------------------------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, T], group: _Group | None = None) -> asyncio.Task[T]:
        """Start a new actor that runs `work`."""
        self._more(1)
        actor = _Actor(group or _Group())
        task = asyncio.get_running_loop().create_task(self._acted(work, actor))

        def skipped(_: object) -> None:
            if not actor.begun:  # it was cancelled before it ran
                work.close()
                self._ended(actor)

        task.add_done_callback(skipped)
        if group is None:  # those of `gather` are joined together, never one by one
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
        self._more(group.waiting - 1 if group.left == 0 else -1)  # those who wait for the group continue
        if group.left == 0:
            group.waiting = 0

    async def join(self, task: asyncio.Task[T]) -> T:
        """Wait for the result of an actor that was started with `begin`."""
        group = self._groups.get(task)
        if _ACTING.get() and group is not None and group.left:
            group.waiting += 1
            self._more(-1)
        return await task

    async def gather(self, jobs: Iterable[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """The result or exception of every job. Each job is an actor, and the caller waits for all of them."""
        work = list(jobs)
        group = _Group(len(work))
        tasks = [self.begin(job, group) for job in work]
        if _ACTING.get() and tasks:
            group.waiting += 1
            self._more(-1)
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    async def outside(self, work: Awaitable[T]) -> T:
        """Wait for something that is not a service, such as a slow environment or a program. With `deterministic`, no
        service takes a step until it is done; otherwise the others continue meanwhile."""
        return await work if self.deterministic else await self.elsewhere(work)

    async def elsewhere(self, work: Awaitable[T]) -> T:
        """Wait for something that is not a service, such as a remote model, while the others continue."""
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
        """Wait for an answer of `service`, which already has the request in its queue."""
        self._serve(service)
        if not _ACTING.get():
            return await future
        self._waiting.add(future)
        self._more(-1)
        try:
            return await future
        finally:
            if future in self._waiting:  # no answer came: the actor that asked was cancelled
                self._waiting.discard(future)
                self._more(1)

    def deliver(self, future: asyncio.Future[T], answer: T | BaseException) -> None:
        """Deliver an answer; an exception is raised where it is awaited."""
        if future in self._waiting:
            self._waiting.discard(future)
            self._more(1)
        if future.done():  # the caller was cancelled
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    # -- services -------------------------------------------------------------------------------------------------

    def _serve(self, service: Service) -> None:
        """Make sure that `service`, which has a request, takes steps until it has no more work."""
        if service not in self._services:
            self._services.append(service)
        key = None if self.deterministic else service
        pacer = self._pacers.get(key)
        if pacer is None or pacer.done():
            work = self._together() if key is None else self._alone(service)
            self._pacers[key] = asyncio.get_running_loop().create_task(work)

    def forget(self, service: Service) -> None:
        """Do not keep in memory a service that is closed."""
        self._services = [s for s in self._services if s is not service]
        self._pacers.pop(service, None)

    async def _together(self) -> None:
        while True:
            await asyncio.sleep(0)  # actors that were started at the same time send their requests first
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
            if self.active > 0:  # wait a moment, so that requests about to come can join this step
                with suppress(TimeoutError):
                    async with asyncio.timeout(_MOMENT):
                        await self._quiet.wait()
            service.take()
            await self._step([service], _one_step)

    async def _step(self, busy: Sequence[Service], work: _Work) -> None:
        loop, over = asyncio.get_running_loop(), threading.Event()
        steps = asyncio.gather(*(loop.run_in_executor(s.thread, work, s, over) for s in busy), return_exceptions=True)
        try:
            results = await asyncio.shield(steps)
        except asyncio.CancelledError:  # this event loop ends: wait, or the step would take requests of the next one
            over.set()
            self._deliver_all(busy, await steps)
            raise
        self._deliver_all(busy, results)

    def _deliver_all(self, busy: Sequence[Service], results: Sequence[Any]) -> None:
        for service, result in zip(busy, results, strict=True):
            if isinstance(result, Exception):
                service.fail(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                for answer in result:
                    answer()


def _one_step(service: Service, over: threading.Event) -> _Answers:
    return service.step()


def _until_an_answer(service: Service, over: threading.Event) -> _Answers:
    """Take steps until one gives an answer: before that, no actor can send another request. When it is `over`, nobody
    waits for an answer any more."""
    answers = service.step()
    while not answers and service.busy and not service.queued and not over.is_set():
        answers = service.step()
    return answers


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Census] = WeakKeyDictionary()


def census() -> Census:
    """The census of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _HERE.get(loop)
    if found is None:
        _forget_ended()
        found = _HERE[loop] = Census()
    return found


def _forget_ended() -> None:
    """Drop the censuses of closed event loops. They refer to their loop and their services and keep them in memory."""
    for ended in [loop for loop in _HERE if loop.is_closed()]:
        del _HERE[ended]


def forget(service: Service) -> None:
    """Release a service that is closed. Otherwise an engine would keep its memory until the next run begins."""
    _forget_ended()
    for known in list(_HERE.values()):
        known.forget(service)


def deliver(future: asyncio.Future[T], answer: T | BaseException) -> None:
    """Deliver an answer on the event loop that waits for it; an exception is raised where it is awaited."""
    found = _HERE.get(future.get_loop())
    (found or Census()).deliver(future, answer)

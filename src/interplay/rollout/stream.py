"""Rollout as a producer for the whole run: the trainer pulls groups of episodes from it. Does not import torch.

A group is all episodes of one task. It is ready when all of them have ended, including failed ones. Task n belongs to
training step n // batch. The capacity limits how far sampling may run ahead of training:

    (staleness + version + 1) · batch − (accepted + running)

where `version` is the number of training steps taken, and dropped groups no longer count in `accepted`. With staleness
0 exactly one batch is played between two training steps, which is synchronous training.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from interplay.engines.census import census
from interplay.engines.pause import Pause
from interplay.rollout.garbage import rare_collections
from interplay.rollout.runner import Seated
from interplay.types import Episode, Task

Play = Callable[[Task, int, Seated], Coroutine[Any, Any, Episode]]
Stage = Callable[[Sequence[Episode]], Awaitable[None]]  # adds rewards after play, for example those of a judge


@dataclass(frozen=True)
class DrawnTask:
    """A task, the players for each of its episodes, and the number of training steps when it was drawn."""

    task: Task
    seated: Callable[[], Seated]
    at: int


@dataclass
class Group:
    """All episodes of task number `number`."""

    number: int
    drawn: DrawnTask
    episodes: list[Episode | None] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return all(e is not None for e in self.episodes)

    @property
    def played(self) -> list[Episode]:
        return [e for e in self.episodes if e is not None]


@dataclass(frozen=True)
class Pace:
    """Groups per training step, episodes per group, steps that sampling may run ahead, and concurrent episodes."""

    batch: int
    replicas: int
    staleness: int
    concurrency: int


class Stream:
    """`draw` returns the task with a number, `play` plays one episode, `stage` adds rewards to a group after play."""

    def __init__(
        self,
        pace: Pace,
        draw: Callable[[int], DrawnTask],
        play: Play,
        stage: Stage | None = None,
    ) -> None:
        self.pace, self._draw, self._play, self._stage = pace, draw, play, stage
        self.version = 0
        self.accepted = 0  # groups that were pulled or wait to be pulled
        self.pause = Pause()
        self._next = 0
        self._again: deque[int] = deque()  # numbers that an earlier process issued but did not train on
        self._running: dict[int, Group] = {}
        self._jobs: deque[tuple[Group, int]] = deque()
        self._ready: list[Group] = []
        self._actors: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failed: BaseException | None = None
        self._stopped = False

    # -- producing ------------------------------------------------------------------------------------------------

    def begin(self, version: int, issued: int, again: Iterable[int] = ()) -> None:
        """Start playing at training step `version`: first the tasks `again`, then those from number `issued` on."""
        self.version, self._next = version, issued
        self._again = deque(again)
        self.accepted = version * self.pace.batch
        self._fill()

    def advance(self, version: int) -> None:
        """A training step was taken, so more groups may be played."""
        self.version = version
        self._fill()

    @property
    def capacity(self) -> int:
        ahead = (self.pace.staleness + self.version + 1) * self.pace.batch
        return ahead - (self.accepted + len(self._running))

    @property
    def unconsumed(self) -> list[int]:
        """The task numbers that were issued but not pulled. A resumed run issues them again, with the same seeds."""
        return sorted([*self._again, *self._running, *(g.number for g in self._ready)])

    @property
    def issued(self) -> int:
        """The next new task number."""
        return self._next

    def _fill(self) -> None:
        while not self._stopped and self.capacity > 0:
            if self._again:
                number = self._again.popleft()
            else:
                number, self._next = self._next, self._next + 1
            group = self._running[number] = Group(number, self._draw(number), [None] * self.pace.replicas)
            self._jobs += [(group, replica) for replica in range(self.pace.replicas)]
        while self._jobs and len(self._actors) < self.pace.concurrency and not self._stopped:
            task = census().begin(self._one(*self._jobs.popleft()))
            self._actors.add(task)
            task.add_done_callback(self._actors.discard)

    async def _one(self, group: Group, replica: int) -> None:
        self.pause.applies()
        try:
            drawn = group.drawn
            group.episodes[replica] = await self._play(drawn.task, replica, drawn.seated())
            if group.whole:
                if self._stage is not None:
                    await self._stage(group.played)
                del self._running[group.number]
                self._ready.append(group)
                self.accepted += 1
                self._changed.set()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a configuration error affects every episode
            self._failed = self._failed or error
            self._changed.set()
        finally:
            me = asyncio.current_task()
            if me is not None:
                self._actors.discard(me)
            if self._failed is None:
                self._fill()

    # -- consuming ------------------------------------------------------------------------------------------------

    async def pull(self, count: int) -> list[Group]:
        """The next `count` groups that are ready, lowest number first."""
        while len(self._ready) < count and self._failed is None:
            self._changed.clear()
            await self._changed.wait()
        if self._failed is not None:
            await self.stop()
            raise self._failed
        self._ready.sort(key=lambda g: g.number)
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def drop(self, groups: int) -> None:
        """Replace this many pulled groups by others: they are not trained on."""
        self.accepted -= groups
        self._fill()

    # -- pausing --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Inside, nothing is sampled for training: episodes wait before their next decision, the calls of tools and
        judges before their next request, and open requests have ended."""
        async with self.pause.holding():
            yield

    async def stop(self) -> None:
        """Cancel all episodes in progress."""
        self._stopped = True
        self._jobs.clear()
        actors = list(self._actors)
        for task in actors:
            task.cancel()
        await asyncio.gather(*actors, return_exceptions=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Stream]:
        """Stop the stream at the end of this context, even after an error."""
        with rare_collections:
            try:
                yield self
            finally:
                await self.stop()

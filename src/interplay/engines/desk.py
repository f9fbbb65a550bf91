"""A service that answers all waiting questions in one step. A subclass defines the answers and their order."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, TypeVar

from interplay.engines.census import census, deliver

Q = TypeVar("Q")
A = TypeVar("A")


class Desk(ABC, Generic[Q, A]):
    thread: Executor | None = None

    def __init__(self) -> None:
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._taken: list[tuple[Q, asyncio.Future[A]]] = []

    @abstractmethod
    def rank(self, question: Q) -> Any:
        """The sort key of the questions of a step; questions with equal keys keep their order of arrival."""

    @abstractmethod
    def answers(self, questions: Sequence[Q]) -> Sequence[A | Exception]:
        """The answer to each question. Runs on the service's thread."""

    @abstractmethod
    def broken(self, error: Exception) -> Exception:
        """The error that every question of the step gets if `answers` itself raised."""

    async def ask(self, question: Q) -> A:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        return await census().answer(self, future)

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
        return [partial(deliver, future, answer) for (_, future), answer in zip(self._taken, found, strict=True)]

    def fail(self, error: Exception) -> None:
        for _, future in self._taken:
            deliver(future, self.broken(error))

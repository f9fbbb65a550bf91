"""A judge that is a Python function outside Interplay, named `module:function`.

It gets the question and the reply as texts and returns a number: what the reply is worth. It may be a coroutine. It
must depend on nothing but its arguments; otherwise a run that is repeated or resumed is no longer identical.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import Future
from typing import SupportsFloat

from interplay.errors import ConfigError, JudgeError
from interplay.registry import imported
from interplay.rewards.judge import said
from interplay.types import Message

THREADS = 8  # how many calls of a function run at once
ABANDONED = 16  # so many calls that did not return in time, and still run, stop the run


class FunctionScorer:
    """Calls the function in threads of its own, so that a slow one does not stop the episodes of other tasks.

    Python cannot end a thread. If a call takes longer than `timeout` seconds, the episodes that it was asked about
    fail, and its thread goes on until the function returns or the run ends. When `ABANDONED` such threads are left, the
    run stops, because they take the time of everything else."""

    def __init__(self, key: str, who: str, timeout: float) -> None:
        self.key, self.who, self.timeout, self.function = key, who, timeout, imported(key, who)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._abandoned: list[threading.Thread] = []

    async def scores(self, asked: Sequence[tuple[tuple[Message, ...], str]]) -> list[float]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._free = loop, asyncio.Semaphore(THREADS)
        async with self._free:
            return [await self._limited(said(question), reply) for question, reply in asked]

    async def _limited(self, question: str, reply: str) -> float:
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        if len(self._abandoned) >= ABANDONED:
            raise ConfigError(
                f"{self.key} is '{self.who}', which did not return within {self.timeout:g} s in {ABANDONED} calls that "
                "still run; expected a function that returns. Give what it waits for a time limit of its own, or raise "
                "the judge's timeout."
            )
        done: Future[float] = Future()
        done.set_running_or_notify_cancel()  # the thread may set its result after the time limit

        def work() -> None:
            try:
                found = self._score(question, reply)
            except BaseException as error:  # the future raises it where the result is read
                done.set_exception(error)
            else:
                done.set_result(found)

        thread = threading.Thread(target=work, name=f"judge {self.who}", daemon=True)  # a run can end while it goes on
        thread.start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(done), self.timeout)
        except TimeoutError:
            self._abandoned.append(thread)
            raise JudgeError(
                f"the judge '{self.who}' did not return within {self.timeout:g} s; expected a function that returns, "
                "or a higher timeout of the judge. Its thread goes on, because Python cannot end it."
            ) from None

    def _score(self, question: str, reply: str) -> float:
        try:
            value = self.function(question, reply)
            if inspect.iscoroutine(value):
                value = asyncio.run(value)
        except Exception as error:  # a bug of a foreign function fails the episodes that it was asked about
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise JudgeError(
                f"the judge '{self.who}' raised {type(error).__name__}: {error} ({at.filename}:{at.lineno})."
            ) from error
        try:
            number = float(value) if isinstance(value, SupportsFloat) else math.nan  # also a number of NumPy or torch
        except Exception:  # such as an array of several numbers
            number = math.nan
        if not math.isfinite(number):
            raise JudgeError(f"the judge '{self.who}' returned {value!r}; expected a finite number.")
        return number

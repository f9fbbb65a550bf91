"""A judge that is a Python function outside Interplay, named `module:function`.

It gets the question and the reply as texts and returns a number: what the reply is worth. It may be a coroutine. It
must depend on nothing but its arguments; otherwise a run that is repeated or resumed is no longer identical.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import traceback
from collections.abc import Sequence
from typing import SupportsFloat

from interplay.errors import JudgeError
from interplay.registry import imported
from interplay.rewards.judge import said
from interplay.types import Message


class FunctionScorer:
    """Calls the function in a thread of its own, so that a slow one does not stop the episodes of other tasks."""

    def __init__(self, key: str, who: str) -> None:
        self.who, self.function = who, imported(key, who)

    async def scores(self, asked: Sequence[tuple[tuple[Message, ...], str]]) -> list[float]:
        return await asyncio.to_thread(lambda: [self._score(said(question), reply) for question, reply in asked])

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

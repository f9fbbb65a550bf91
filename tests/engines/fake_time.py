"""An event loop on which waiting takes no time: when all its tasks wait, its clock jumps to the next timer.

What a test measures or limits in seconds is then the same on every machine, however busy. Work in other threads takes
no time at all on this clock, so it is only for tests whose tasks do everything on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class FakeTime(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None = None) -> Any:
            if timeout is None:
                return select(None)
            self._seconds += timeout
            return select(0)

        selector.select = jump

    def time(self) -> float:
        return self._seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on a loop of its own."""
    with asyncio.Runner(loop_factory=FakeTime) as runner:
        return runner.run(work)


def monotonic() -> float:
    """Stands for `time.monotonic` in code that runs on such a loop."""
    return asyncio.get_running_loop().time()

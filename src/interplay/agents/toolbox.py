"""Runs tool calls, all that are waiting in one round, beside the engine's next step.

Answers are handed out at the end of a round, like an engine's: which episode goes on first never depends on which
tool was faster, so a run can be repeated exactly. What a tool raises is the machinery's failure, a `ToolError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from weakref import WeakKeyDictionary

from interplay.agents.syntax import Call
from interplay.engines.rounds import rounds
from interplay.errors import InterplayError, ToolError

WORKERS = 8


@dataclass(frozen=True, slots=True)
class Job:
    key: tuple[object, ...]
    call: Call
    answer: asyncio.Future[str]


class Toolbox:
    thread: Executor | None = None

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="tool")
        self._waiting: list[Job] = []
        self._taken: list[Job] = []

    async def use(self, key: tuple[object, ...], call: Call) -> str:
        """The output of one call; `key` orders those of a round."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append(Job(key, call, answer))
        rounds().serve(self)
        return await answer

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def take(self) -> None:
        self._taken, self._waiting = sorted(self._waiting, key=lambda job: job.key), []

    def step(self) -> list[Callable[[], None]]:
        running = [(job, self._pool.submit(job.call.tool.run, **job.call.arguments)) for job in self._taken]
        return [partial(_hand_out, job.answer, _wait(job.call, done)) for job, done in running]

    def fail(self, error: Exception) -> None:
        for job in self._taken:
            _hand_out(job.answer, ToolError(f"the tools failed: {type(error).__name__}: {error}"))


def _wait(call: Call, done: Future[str]) -> str | InterplayError:
    """Those before it are finished by now, so that it has begun: the wait is its own."""
    name, seconds = call.tool.name, call.tool.seconds
    try:
        output = done.result(timeout=seconds)
    except TimeoutError:
        return ToolError(f"tool '{name}' ran longer than its {seconds:g} seconds.")
    except InterplayError as error:
        return error
    except Exception as error:  # a tool by somebody else: its bug is this episode's error
        return ToolError(f"tool '{name}' broke: {type(error).__name__}: {error}")
    return output if isinstance(output, str) else ToolError(f"tool '{name}' gave no text but {type(output).__name__}.")


def _hand_out(answer: asyncio.Future[str], output: str | InterplayError) -> None:
    if answer.done():
        return
    if isinstance(output, str):
        answer.set_result(output)
    else:
        answer.set_exception(output)


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Toolbox] = WeakKeyDictionary()


def toolbox() -> Toolbox:
    """That of the running event loop."""
    return _HERE.setdefault(asyncio.get_running_loop(), Toolbox())

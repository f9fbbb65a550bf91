"""Runs tool calls, all that are waiting in one step, beside the engine's next step.

In a deterministic run all answers are handed out together: which episode goes on first never depends on which tool was
faster, so a run can be repeated exactly. What a tool raises is the machinery's failure, a `ToolError`. One
that never ends is left behind: it holds up neither the others nor the end of the program.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from weakref import WeakKeyDictionary

from interplay.agents.arguments import Call
from interplay.engines.census import census
from interplay.engines.desk import Desk
from interplay.errors import InterplayError, ToolError


class Toolbox(Desk[tuple[tuple[object, ...], Call], str]):
    """A question is a call, after the key that orders those of a step. `workers` calls run at once."""

    def __init__(self, workers: int = 8) -> None:
        super().__init__()
        self.workers = workers
        self._free: asyncio.Semaphore | None = None

    async def use(self, key: tuple[object, ...], call: Call) -> str:
        """The output of one call. Without determinism nobody waits for another's tool."""
        if census().deterministic:
            return await self.ask((key, call))
        self._free = self._free or asyncio.Semaphore(self.workers)
        output = await census().elsewhere(self._alone(call, self._free))
        if isinstance(output, Exception):
            raise output
        return output

    async def _alone(self, call: Call, free: asyncio.Semaphore) -> str | Exception:
        async with free:
            done = _begun(call)
            await asyncio.wait([asyncio.wrap_future(done)], timeout=call.tool.seconds)
            return _wait(call, done, patient=False)

    def use_now(self, call: Call) -> str:
        """The same at once, for who has nothing else to do meanwhile."""
        (output,) = self.answers([((), call)])
        if isinstance(output, Exception):
            raise output
        return output

    def rank(self, question: tuple[tuple[object, ...], Call]) -> tuple[object, ...]:
        return question[0]

    def answers(self, questions: Sequence[tuple[tuple[object, ...], Call]]) -> list[str | Exception]:
        out: list[str | Exception] = []
        running: deque[tuple[Call, Future[str]]] = deque()
        for _, call in questions:
            if len(running) == self.workers:
                out.append(_wait(*running.popleft()))
            running.append((call, _begun(call)))
        return out + [_wait(call, done) for call, done in running]

    def broken(self, error: Exception) -> ToolError:
        return ToolError(f"the tools failed: {type(error).__name__}: {error}")


def _begun(call: Call) -> Future[str]:
    done: Future[str] = Future()

    def work() -> None:
        try:
            done.set_result(call.tool.run(**call.arguments))
        except BaseException as error:  # it is raised where the result is asked for
            done.set_exception(error)

    threading.Thread(target=work, name=f"tool {call.tool.name}", daemon=True).start()
    return done


def _wait(call: Call, done: Future[str], patient: bool = True) -> str | Exception:
    name, seconds = call.tool.name, call.tool.seconds
    try:
        output = done.result(timeout=seconds if patient else 0)
    except TimeoutError:
        return ToolError(f"tool '{name}' ran longer than its {seconds:g} seconds.")
    except InterplayError as error:
        return error
    except (Exception, SystemExit) as error:  # a tool by somebody else: its bug is this episode's error
        return ToolError(f"tool '{name}' broke: {type(error).__name__}: {error}")
    return output if isinstance(output, str) else ToolError(f"tool '{name}' gave no text but {type(output).__name__}.")


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Toolbox] = WeakKeyDictionary()


def toolbox(workers: int) -> Toolbox:
    """That of the running event loop, for a run in which `workers` calls run at once."""
    found = _HERE.setdefault(asyncio.get_running_loop(), Toolbox(workers))
    found.workers = workers
    return found

"""Runs tool calls while the engine takes its next step; all waiting calls run in one step.

In a deterministic run, all answers of a step are delivered together, so the order in which episodes continue does not
depend on which tool was faster, and the run can be repeated exactly. If a tool raises, that is a failure of the system:
a `ToolError`. A tool that never ends is abandoned, and delays neither other calls nor the end of the program.
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
    """A question is a pair: the key by which the calls of a step are ordered, and the call. At most `workers` calls run
    at once."""

    def __init__(self, workers: int = 8) -> None:
        super().__init__()
        self.workers = workers
        self._free: asyncio.Semaphore | None = None

    async def use(self, key: tuple[object, ...], call: Call) -> str:
        """The output of one call. In a run that is not deterministic, no caller waits for the calls of others."""
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
        """Run one call and block until its output is there."""
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
        except BaseException as error:  # the future raises it where the result is read
            done.set_exception(error)

    threading.Thread(target=work, name=f"tool {call.tool.name}", daemon=True).start()
    return done


def _wait(call: Call, done: Future[str], patient: bool = True) -> str | Exception:
    name, seconds = call.tool.name, call.tool.seconds
    try:
        output = done.result(timeout=seconds if patient else 0)
    except TimeoutError:
        return ToolError(f"tool '{name}' exceeded its limit of {seconds:g} seconds.")
    except InterplayError as error:
        return error
    except (Exception, SystemExit) as error:  # a tool is foreign code: its bug becomes an error of this episode
        return ToolError(f"tool '{name}' failed: {type(error).__name__}: {error}")
    return output if isinstance(output, str) else ToolError(f"tool '{name}' gave {type(output).__name__}, not text.")


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Toolbox] = WeakKeyDictionary()


def toolbox(workers: int) -> Toolbox:
    """The toolbox of the running event loop; `workers` is set to the given number."""
    found = _HERE.setdefault(asyncio.get_running_loop(), Toolbox(workers))
    found.workers = workers
    return found

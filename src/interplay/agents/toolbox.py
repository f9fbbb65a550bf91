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

from interplay.agents.syntax import Call
from interplay.engines.desk import Desk
from interplay.errors import InterplayError, ToolError

WORKERS = 8  # calls that run at once


class Toolbox(Desk[tuple[tuple[object, ...], Call], str]):
    """A question is a call, after the key that orders those of a step."""

    async def use(self, key: tuple[object, ...], call: Call) -> str:
        """The output of one call."""
        return await self.ask((key, call))

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
            if len(running) == WORKERS:
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


def _wait(call: Call, done: Future[str]) -> str | Exception:
    name, seconds = call.tool.name, call.tool.seconds
    try:
        output = done.result(timeout=seconds)
    except TimeoutError:
        return ToolError(f"tool '{name}' ran longer than its {seconds:g} seconds.")
    except InterplayError as error:
        return error
    except (Exception, SystemExit) as error:  # a tool by somebody else: its bug is this episode's error
        return ToolError(f"tool '{name}' broke: {type(error).__name__}: {error}")
    return output if isinstance(output, str) else ToolError(f"tool '{name}' gave no text but {type(output).__name__}.")


_HERE: WeakKeyDictionary[asyncio.AbstractEventLoop, Toolbox] = WeakKeyDictionary()


def toolbox() -> Toolbox:
    """That of the running event loop."""
    return _HERE.setdefault(asyncio.get_running_loop(), Toolbox())

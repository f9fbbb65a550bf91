"""Programs that run as coroutines in this process: `async def team(task, ask)`, without HTTP.

    async def team(task, ask):
        plan = await ask("planner", f"Plan: {task['question']}")
        return str(await ask("solver", [{"role": "user", "content": f"{plan}\\nSolve: {task['question']}"}]))

`ask` takes a role, and a text or a list of messages in the format of chat APIs. Its keyword arguments are `tools`,
`stop`, `max_tokens`, `only` (the list of all allowed replies) and `phase`. It returns a `Spoken`: `str(reply)` is the
text and `reply.calls` are the tool calls. The reward is computed from the value that the coroutine returns. Tools with
side effects are called by `await ask.effect(tool, *args)`, so that they are recorded (`effects.py`).

The coroutine has an event loop of its own, so `asyncio.gather` and similar functions work in it. The loop runs until
everything in it waits for answers. Therefore the program, and not timing, decides which calls wait together. Only
calls that come after a wait for a socket or a timer can arrive later. The code is not isolated, so it must be trusted.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import selectors
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from interplay.envs.programs import ending
from interplay.envs.programs.effects import EffectLog
from interplay.envs.programs.run import Inquiry, ProgramCrash, ProgramRun, Reply
from interplay.envs.programs.talk import Names, messages_of, tools_of
from interplay.errors import EnvError, InterplayError, ReplayError
from interplay.types import HistoryMatch, Message, ProgramCall, Role, Spoken

_THREADS = 16  # how many program loops run at once; all episodes share these threads
_pool: list[ThreadPoolExecutor] = []
_lock = threading.Lock()


class AskRefused(Exception):
    """The model could not be asked, because the prompt is longer than it can read."""


class Ask(Protocol):
    def __call__(
        self,
        role: Role,
        messages: str | Sequence[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        stop: Sequence[str] = (),
        max_tokens: int | None = None,
        only: Sequence[str] = (),
        phase: str = "",
    ) -> Awaitable[Spoken]: ...


class AskAndEffect(Ask, Protocol):
    def effect(self, tool: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        """Call a tool that changes the world. In a replay the recorded result is given, and the tool does not run."""
        ...


TeamFunction = Callable[[Mapping[str, Any], AskAndEffect], Awaitable[Any]]


class _Watch(selectors.DefaultSelector):
    """A selector that calls `idle` when the loop would go to sleep."""

    idle: Callable[[float | None], float | None] = staticmethod(lambda timeout: timeout)

    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout if timeout == 0 else self.idle(timeout))


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that counts the jobs that the program runs in threads."""

    def __init__(self) -> None:
        self.watch = _Watch()
        super().__init__(self.watch)
        self.jobs = 0

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: object) -> None:
        self.jobs -= 1


@dataclass(frozen=True)
class How:
    """How a coroutine is run: `seconds` limits the time between two answers, `only` lists a role's allowed replies."""

    seconds: float
    history: HistoryMatch = "noise"
    only: Mapping[Role, Sequence[str]] = field(default_factory=dict)
    effects: EffectLog = field(default_factory=EffectLog)
    names: Names = "prefix"


class _Live:
    """The loop of one program, its main task, and the calls that wait in it."""

    def __init__(self, team: TeamFunction, task: Mapping[str, Any], how: How) -> None:
        self.how, self.seconds = how, how.seconds
        self.loop = _Loop()
        self.loop.watch.idle = self._idle
        self.futures: list[tuple[Inquiry, asyncio.Future[Spoken]]] = []
        self.stuck = ""
        self._left: BaseException | None = None  # `SystemExit`, which asyncio raises out of the loop
        self.over = False  # nobody needs the program any more
        self._runs = False  # a thread runs the loop
        self._state = threading.Lock()  # for `over` and `_runs`
        self._deadline = 0.0
        self.main = self.loop.create_task(_awaited(team, task, self))
        self.main.add_done_callback(self._stop)

    async def __call__(
        self,
        role: Role,
        messages: str | Sequence[Message | Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        stop: Sequence[str] = (),
        max_tokens: int | None = None,
        only: Sequence[str] = (),
        phase: str = "",
    ) -> Spoken:
        listed = tuple(map(Spoken, only or self.how.only.get(role, ())))
        call = ProgramCall(tools_of(tools), tuple(stop), max_tokens, listed, history=self.how.history)
        question = Inquiry(role, messages_of(messages, self.how.names), call, phase)
        future: asyncio.Future[Spoken] = self.loop.create_future()
        self.futures.append((question, future))
        try:
            return await future
        finally:
            self.futures = [(q, f) for q, f in self.futures if f is not future]

    async def effect(self, tool: Callable[..., Any], *args: Any) -> Any:
        name, log = f"{tool.__module__}.{tool.__qualname__}", self.how.effects
        found = log.recall(name, args)
        if log.diverged:
            raise ReplayError(f"a replay diverged: it calls {log.diverged}, which was not called before.")
        if found is None:
            result = tool(*args)
            result = json.loads(json.dumps(await result if inspect.isawaitable(result) else result))
            log.note(name, args, {"result": result})
            return result
        return found["result"]

    def _stop(self, _: object) -> None:
        self.loop.stop()

    def run(self) -> None:
        """Run the loop until it stops. The calling thread must have no running event loop. If `end` was called
        meanwhile, this thread closes the loop."""
        with self._state:
            if self.over:
                return
            self._runs = True
        self._deadline, self.stuck = time.monotonic() + self.seconds, ""
        try:
            self.loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:  # of the program: signals reach only the main thread
            self._left = error
        with self._state:
            self._runs, over = False, self.over
        if over:
            self.close()

    def _idle(self, timeout: float | None) -> float | None:
        """Called when the loop has nothing to run now. Stop the loop if calls wait for answers; otherwise return how
        long it may sleep."""
        loop, left = self.loop, self._deadline - time.monotonic()
        if not loop.jobs and any(not future.done() for _, future in self.futures):
            loop.stop()
            return 0
        if timeout is None and not loop.jobs and len(loop.watch.get_map()) <= 1:
            self.stuck = "the program waits for something that never comes: no call, timer, thread or socket is left."
        elif left <= 0:
            self.stuck = f"the program ran longer than env.program.seconds ({self.seconds:g}) between two calls."
        if self.stuck:
            loop.stop()
            return 0
        return left if timeout is None else min(timeout, left)

    @property
    def done(self) -> bool:
        return self._left is not None or self.main.done()

    def error(self) -> BaseException | None:
        """The error with which the program has ended; None if it has returned a result."""
        if self._left is not None:
            return self._left
        try:
            return self.main.exception()
        except asyncio.CancelledError as error:  # the program has cancelled itself
            return error

    def end(self) -> bool:
        """Ask the program to end. Returns whether the caller must close the loop. If a thread runs the loop now, that
        thread closes it, because no other thread may."""
        with self._state:
            if self.over:
                return False
            self.over = True
            if self._runs:
                self.loop.call_soon_threadsafe(self._stop_if_it_runs)
            return not self._runs

    def _stop_if_it_runs(self) -> None:
        """Stop the loop, unless it had already stopped by itself and is being closed now."""
        if self._runs:
            self.loop.stop()

    def close(self) -> None:
        """Cancel all remaining tasks and close the loop."""
        self.loop.watch.idle = lambda timeout: timeout
        self.main.remove_done_callback(self._stop)
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            with suppress(SystemExit, KeyboardInterrupt):  # a task may raise it when it is cancelled
                self.loop.run_until_complete(asyncio.wait(left, timeout=1.0))
        if self.main.done() and not self.main.cancelled():
            self.main.exception()  # asyncio logs a warning about exceptions that were never retrieved
        self.loop.close()


class CoroutineRun(ProgramRun):
    """One run of `team`."""

    def __init__(self, team: TeamFunction, task: Mapping[str, Any], how: How) -> None:
        super().__init__(effects=how.effects)
        self._live = _Live(team, task, how)
        self._finalizer = weakref.finalize(self, ending.later, partial(_end, self._live))
        ending.begin()

    async def settle(self) -> None:
        if not self.ended:
            await asyncio.get_running_loop().run_in_executor(_threads(), self._run)

    def settle_now(self) -> None:
        if not self.ended:
            _threads().submit(self._run).result()

    def _run(self) -> None:
        live = self._live
        live.run()
        self.waiting = [question for question, _ in live.futures]
        if live.over:
            self.ended, self.waiting = True, []
        elif live.stuck:  # treated as a crash, because a reply of the policy can cause it
            self.ended, self.waiting = True, []
            self.crash = ProgramCrash("Timeout", live.stuck, "an unknown place")
            self.close()
        elif live.done:
            self.ended, self.waiting = True, []
            error = live.error()
            if isinstance(error, InterplayError):
                raise error
            self.crash = None if error is None else ProgramCrash.of(error)
            self.result = None if error is not None else live.main.result()
            self._finalizer.detach()
            if live.end():
                live.close()

    def answer(self, question: Inquiry, answer: Reply) -> None:
        for waits, future in self._live.futures:
            if waits is question and not future.done():
                if answer.spoken.refused:
                    future.set_exception(AskRefused(answer.spoken.refused))
                else:
                    future.set_result(answer.spoken)
                self.waiting = [q for q in self.waiting if q is not question]
                return
        raise EnvError("an answer came to a call that does not wait any more.")

    def close(self) -> None:
        self._finalizer()


async def _awaited(team: TeamFunction, task: Mapping[str, Any], ask: AskAndEffect) -> Any:
    return await team(task, ask)


def _end(live: _Live) -> None:
    """End the program. A thread that has no running loop closes its loop."""
    if not live.end():
        return
    try:
        _threads().submit(live.close)
    except RuntimeError:  # the interpreter is shutting down, so the loop will not run again
        live.main._log_destroy_pending = False  # type: ignore[attr-defined]


def _threads() -> ThreadPoolExecutor:
    with _lock:
        if not _pool:
            _pool.append(ThreadPoolExecutor(_THREADS, "program"))
        return _pool[0]

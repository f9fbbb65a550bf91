"""The gateway: one HTTP server for all programs of this process, with a session for each run of a program.

It has a thread and an event loop of its own, so engines and environments cannot block it. Each session has a 128-bit
key, which becomes invalid when the run ends. If a process does several runs (`env.program.keep`), they have the same
key one after another, because the program may keep a client in which the key is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import secrets
import socket
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from interplay.envs.programs.effects import EffectLog
from interplay.envs.programs.http import Handler, HttpReply, HttpRequest, HttpServer
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import Inquiry, ProgramCrash, ProgramRun, Reply
from interplay.envs.programs.server import ChatRouter, Conversations, GoneError
from interplay.envs.programs.talk import Names
from interplay.envs.programs.wire import ChatOrder, route
from interplay.errors import EnvError
from interplay.types import HistoryMatch

# The key of clients that a program makes when it is imported, before its processes are forked. In a network that no
# other process is in, it stands for the key of the process.
THIS_PROCESS = "this-process"
# How many seconds a replay waits for a call that came the first time, while other calls wait. A thread of the program
# can be this late on a busy machine.
PATIENCE = 2.0
REMEMBERED = 10_000  # how many invalid keys are known to be those of episodes that have ended
_ENDED = "the episode of this key has ended."


@dataclass(eq=False)
class _Pending:
    question: Inquiry
    reply: Reply | None = None


@dataclass(eq=False)
class _CallInFlight:
    """One request and its answers. If the connection was lost (`waiter` is None), a retry of the client joins it."""

    digest: str
    pending: list[_Pending]
    waiter: asyncio.Future[list[Reply]] | None = None

    def answered(self) -> None:
        """Give the answers to the request that waits, if there is one and all answers are known."""
        if self.waiter is not None and not self.waiter.done():
            replies = [p.reply for p in self.pending if p.reply is not None]
            if len(replies) == len(self.pending):
                self.waiter.set_result(replies)


class HttpRun(ProgramRun):
    """A run of a program that asks through the gateway. Only the gateway's thread uses the private attributes."""

    def __init__(self, options: OutsideOptions, effects: EffectLog | None = None, key: str = "") -> None:
        super().__init__(effects=effects or EffectLog())
        self.options = options
        how = options.program
        self.names: Names = how.names
        self.history: HistoryMatch = how.history
        self.embeddings = how.embeddings
        self.models: Sequence[str] = options.roles
        self.said = Conversations()
        self.seconds = how.seconds
        self.linger = how.linger / 1000 if len(options.roles) > 1 else 0.0
        self.gateway = gateway()
        self.key = key or new_key()
        self._calls: list[_CallInFlight] = []
        self._waiter: Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.gateway.sessions[_hashed(self.key)] = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}/s/{self.key}/v1"

    # -- on the gateway's loop ------------------------------------------------------------------------------------

    async def answers(self, order: ChatOrder, digest: str, retry: bool, lost: asyncio.Future[None]) -> list[Reply]:
        if self.ended:
            self.asked_late()
            raise GoneError(_ENDED)
        call = next((c for c in self._calls if c.waiter is None and c.digest == digest), None) if retry else None
        if call is None:
            question = route(order, self.options)
            call = _CallInFlight(digest, [_Pending(replace(question)) for _ in range(order.n)])
            self._calls.append(call)
            self._settles_after(self.linger)
        waiter: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        call.waiter = waiter
        call.answered()

        def gone(_: object) -> None:
            if not waiter.done():
                waiter.set_exception(GoneError("the client has gone."))

        lost.add_done_callback(gone)
        try:
            replies = await waiter
            self._calls.remove(call)
            return replies
        finally:
            lost.remove_done_callback(gone)
            call.waiter = None

    def _settles_after(self, seconds: float) -> None:
        """Report the waiting calls after `seconds` without another call. In a replay, report them when all calls are
        there that came the first time."""
        if self._timer is not None:
            self._timer.cancel()
        if self.expected and not self.ended:
            waiting = {p.question.digest for c in self._calls for p in c.pending if p.reply is None}
            seconds = 0.0 if self.expected <= waiting else max(seconds, min(PATIENCE, self.seconds / 2))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._ready) if seconds else None
        if not seconds:
            self._ready()

    def _ready(self) -> None:
        waiting = [p.question for c in self._calls for p in c.pending if p.reply is None]
        if self._waiter is None or not (waiting or self.ended):
            return
        self.waiting = [] if self.ended else waiting
        waiter, self._waiter = self._waiter, None
        if not waiter.cancelled():
            waiter.set_result(None)

    def _wait(self, waiter: Future[None]) -> None:
        self._waiter = waiter
        self._settles_after(0.0 if self.ended else self.linger)

    def _deliver(self, question: Inquiry, answer: Reply) -> None:
        for call in self._calls:
            for pending in call.pending:
                if pending.question is question and pending.reply is None:
                    pending.reply = answer
                    call.answered()
                    return

    def _end(self, result: Any, crash: ProgramCrash | None) -> None:
        if not self.ended:
            self.ended, self.result, self.crash = True, result, crash
            for call in self._calls:
                if call.waiter is not None and not call.waiter.done():
                    call.waiter.set_exception(GoneError(_ENDED))
            self._settles_after(0.0)

    def asked_late(self) -> None:
        """The program has made a request after its end."""

    # -- from any thread ------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        if self.ended:
            return
        waiter: Future[None] = Future()
        self.gateway.call(self._wait, waiter)
        try:
            await asyncio.wait_for(asyncio.wrap_future(waiter), self.seconds)
        except TimeoutError:
            self._late()

    def settle_now(self) -> None:
        if self.ended:
            return
        waiter: Future[None] = Future()
        self.gateway.call(self._wait, waiter)
        try:
            waiter.result(self.seconds)
        except TimeoutError:
            self._late()

    def _late(self) -> None:
        """End the run with a `Timeout` crash. It is treated as a crash, because a reply of the policy can cause it."""
        words = f"it ran longer than env.program.seconds ({self.seconds:g}) between two calls"
        self.ended, self.waiting, self.crash = True, [], ProgramCrash("Timeout", words, "an unknown place")
        self.close()

    def answer(self, question: Inquiry, answer: Reply) -> None:
        self.waiting = [q for q in self.waiting if q is not question]
        self.gateway.call(self._deliver, question, answer)

    def finish(self, result: Any, crash: ProgramCrash | None = None) -> None:
        """Record that the program has ended, with its result or its crash."""
        self.gateway.call(self._end, result, crash)

    def end(self, body: Mapping[str, Any]) -> HttpReply:
        """Handle the result that an attached service posts. Other programs post nothing, so this is an error."""
        return HttpReply.error(404, "this session ends with its program.")

    def close(self) -> None:
        self.leave()
        self.gateway.call(self._end, None, None)

    def leave(self) -> None:
        """Make the key invalid, unless it is already the key of a later run."""
        if self.gateway.sessions.get(_hashed(self.key)) is self:
            self.gateway.forget(self.key)


def new_key() -> str:
    return secrets.token_hex(16)


def _hashed(key: str) -> str:
    """The hash by which sessions are looked up, so that the time of a comparison reveals nothing about a key."""
    return hashlib.sha256(key.encode()).hexdigest()


async def _nobody_waits(_: HttpRequest) -> HttpReply:
    return HttpReply.error(503, "no episode waits now; ask again.", retry=True)


def _allow_connections() -> None:
    """Raise the limit of open files: each connection is one, and many systems allow a process only 1,024 of them unless
    it asks for more."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if most == resource.RLIM_INFINITY else min(65536, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))


class Gateway:
    def __init__(self, port: int = 0) -> None:
        _allow_connections()
        self.attach: Handler | None = None  # handles requests of services to open a session
        self.sessions: dict[str, HttpRun] = {}
        self._adopting: set[asyncio.Task[None]] = set()  # the loop itself holds its tasks only weakly
        self._loop = asyncio.new_event_loop()
        self._ended: OrderedDict[str, None] = OrderedDict()  # the hashes of the newest keys that were made invalid
        self._router = ChatRouter(self._find, self._here)
        self._server = HttpServer(self._handle, port=port)
        threading.Thread(target=self._run, name="gateway", daemon=True).start()
        begun: Future[None] = asyncio.run_coroutine_threadsafe(self._server.start(), self._loop)
        try:
            begun.result(30)
        except OSError as error:
            raise EnvError(f"the gateway cannot open a socket on the loopback: {error}.") from None

    @property
    def port(self) -> int:
        return self._server.port

    def adopt(self, listener: socket.socket, name: str) -> None:
        """Also serve the connections of a socket on which a worker listens, in a network of its own."""
        asyncio.run_coroutine_threadsafe(self._server.adopt(listener, name), self._loop).result(30)

    def adopt_from(self, lender: socket.socket) -> None:
        """Also serve the sockets that processes send through `lender`, each with the key of its process."""
        self.call(self._loop.add_reader, lender.fileno(), self._receive, lender)

    def _receive(self, lender: socket.socket) -> None:
        key, files, *_ = socket.recv_fds(lender, 64, 1)
        if not key:  # the worker has ended
            self._loop.remove_reader(lender.fileno())
            lender.close()
            return
        if not files:  # the kernel has thrown the socket away
            if (run := self.sessions.get(_hashed(key.decode()))) is not None:
                words = "the trainer may not open more files, so that the program cannot reach the gateway"
                run._end(None, ProgramCrash("no socket", words, "no place", True))
            return
        listener = socket.socket(fileno=files[0])
        task = self._loop.create_task(self._adopt(listener, key.decode()))
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _adopt(self, listener: socket.socket, key: str) -> None:
        await self._server.adopt(listener, key)
        if _hashed(key) not in self.sessions:  # the process is not needed any more
            self._server.abandon(key)

    def forget(self, key: str) -> None:
        """Make a key invalid, and close the socket of its process, if it has one."""
        if self.sessions.pop(_hashed(key), None) is not None:
            self.call(self._note_end, _hashed(key))
        self.call(self._server.abandon, key)

    def _note_end(self, hashed: str) -> None:
        self._ended[hashed] = None
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def _find(self, key: str) -> HttpRun | None:
        hashed = _hashed(key)
        if (run := self.sessions.get(hashed)) is None and hashed in self._ended:
            raise GoneError(_ENDED)
        return run

    def is_idle(self, key: str) -> bool:
        """Whether all requests with this key are answered. Call this on the gateway's loop."""
        return self._server.is_idle(key)

    def call(self, function: Any, *args: Any) -> None:
        """Schedule `function` on the gateway's loop."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)

    async def _handle(self, request: HttpRequest) -> HttpReply:
        parts = request.path.strip("/").split("/")
        if request.name and parts[:2] == ["s", THIS_PROCESS]:
            parts[1] = request.name
            request = replace(request, path="/".join(["", *parts]))
        if request.method == "POST" and self._here(request.headers.get("host", "")):
            if parts == ["attach"]:
                return await (self.attach or _nobody_waits)(request)
            run = self.sessions.get(_hashed(parts[1])) if len(parts) > 2 and parts[0] == "s" else None
            if run is not None and parts[2:] in (["end"], ["v1", "effects"]):
                if run.ended and parts[2] != "end":
                    run.asked_late()
                    return HttpReply.error(410, _ENDED)
                try:
                    body = request.json()
                except (ValueError, RecursionError) as error:
                    return HttpReply.error(400, f"the body cannot be read: {error}; expected a JSON object.")
                return run.end(body) if parts[2] == "end" else run.effects.posted(body)
        return await self._router(request)

    def _here(self, host: str) -> bool:
        name, _, port = host.rpartition(":")
        return name in ("127.0.0.1", "localhost") and port == str(self.port)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)


_made: dict[int, Gateway] = {}  # by process id, because a forked process cannot use its parent's thread
_lock = threading.Lock()


def gateway(port: int = 0) -> Gateway:
    """Return the gateway of this process. If there is none yet, start one on `port`."""
    with _lock:
        if os.getpid() not in _made:
            _made[os.getpid()] = Gateway(port)
        return _made[os.getpid()]

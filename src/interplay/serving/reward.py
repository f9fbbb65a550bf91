"""A reward server: replies arrive over HTTP, wait briefly for each other, and are scored together.

    POST /score   {"items": [{"messages": [["user", "…"]], "reply": "…"}]}  →  {"scores": [0.3], "version": "…"}
    GET  /health  {"ok": true, "kind": "verifier", "version": "…", "waiting": 0}

The version is a digest of the weights. It is part of every answer, so that a score can be traced to its weights. If a
token is set, every request to /score must send it as a bearer token. Without a token, the server listens on this
machine only.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from interplay.errors import ConfigError
from interplay.training.preference import Conversation, RewardModel, digest
from interplay.types import Message

_MOST_BYTES = 8 * 2**20  # the largest size of one request
_MOMENT = 0.002  # seconds that a request waits for others
_AT_ONCE = 2  # threads for scoring (while the device computes one batch, the next is prepared), and for tokenising


class RewardServer:
    """At most `batch` replies are scored together, and at most `most` may wait."""

    def __init__(self, model: RewardModel, token: str = "", batch: int = 256, most: int = 65_536) -> None:
        self.model, self.token, self.batch, self.most = model, token, batch, most
        self.version = digest(model)
        self.batches = 0
        self._waiting: list[tuple[Conversation, asyncio.Future[float]]] = []
        self._arrived = asyncio.Event()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "interplay-reward")
        # These threads tokenise while the model computes. The tokenizer itself does not hold Python's global lock.
        self._readers = ThreadPoolExecutor(_AT_ONCE, "interplay-reward-reader")

    def app(self) -> Any:
        """The ASGI application."""
        try:
            from starlette.applications import Starlette
            from starlette.routing import Route
        except ImportError:
            raise ConfigError("a reward server needs starlette; pip install 'interplay[serving]'.") from None

        @asynccontextmanager
        async def working(_: Any) -> AsyncIterator[None]:
            workers = [asyncio.create_task(self._work()) for _ in range(_AT_ONCE)]
            try:
                yield
            finally:
                for worker in workers:
                    worker.cancel()

        routes = [Route("/score", self._score, methods=["POST"]), Route("/health", self._health, methods=["GET"])]
        return Starlette(routes=routes, lifespan=working)

    async def _health(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        about = {"ok": True, "kind": self.model.kind, "version": self.version, "waiting": len(self._waiting)}
        return JSONResponse(about)

    async def _score(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        if self.token:
            given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
            if not hmac.compare_digest(given, self.token.encode()):
                why = "the bearer token is wrong or missing; send the header Authorization: Bearer TOKEN."
                return JSONResponse({"error": why}, 401)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                return JSONResponse(
                    {"error": f"the request is too large; expected at most {_MOST_BYTES:,} bytes."}, 413
                )
        try:
            items = [_conversation(item) for item in json.loads(body)["items"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return JSONResponse({"error": 'expected {"items": [{"messages": [[role, content]], "reply": text}]}.'}, 400)
        if len(self._waiting) + len(items) > self.most:
            return JSONResponse({"error": "too many replies wait already; try again later."}, 503)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._readers, self.model.read, items)
        futures = [loop.create_future() for _ in items]
        self._waiting += zip(items, futures, strict=True)
        self._arrived.set()
        try:
            scores = await asyncio.gather(*futures)
        except Exception as error:  # the model failed: the client must get an error and not a score
            return JSONResponse({"error": f"scoring failed: {type(error).__name__}."}, 500)
        return JSONResponse({"scores": scores, "version": self.version})

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if len(self._waiting) < self.batch:
                await asyncio.sleep(_MOMENT)
            taken, self._waiting = self._waiting[: self.batch], self._waiting[self.batch :]
            if not self._waiting:
                self._arrived.clear()
            if not taken:  # the other worker was faster
                continue
            try:
                found = await loop.run_in_executor(self._threads, self.model.scores, [c for c, _ in taken])
            except Exception as error:
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)
                continue
            self.batches += 1
            for (_, future), score in zip(taken, found, strict=True):
                if not future.done():  # the client may be gone
                    future.set_result(score)


def _conversation(item: Any) -> Conversation:
    messages, reply = item["messages"], item["reply"]
    if not isinstance(messages, list) or not all(isinstance(one, list) and len(one) == 2 for one in messages):
        raise ValueError("messages must be a list of [role, content]")
    for text in (reply, *(text for one in messages for text in one)):
        if not isinstance(text, str):
            raise ValueError("a role, a content and a reply must be texts")
        text.encode()  # raises ValueError for half of a surrogate pair, which no tokenizer reads
    return tuple(Message(role, content) for role, content in messages), reply


def check_address(host: str, token: str) -> None:
    """Refuse an address that other machines can reach if there is no token."""
    try:
        here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    if not here and not token:
        raise ConfigError(
            f"--host is '{host}', which other machines can reach, but there is no token; expected 127.0.0.1, or a "
            "token in the environment variable that --key-variable names."
        )


def serve(server: RewardServer, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until the process is stopped. `ready` is told the port once it is open. Port 0 takes a free one."""
    try:
        import uvicorn
    except ImportError:
        raise ConfigError("a reward server needs uvicorn; pip install 'interplay[serving]'.") from None
    check_address(host, server.token)
    try:
        listening = socket.create_server((host, port), family=_family(host))
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"{host}:{port} cannot be used ({why}); choose another --port or --host.") from None
    with listening:
        ready(listening.getsockname()[1])
        uvicorn.Server(uvicorn.Config(server.app(), log_level="warning")).run(sockets=[listening])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET

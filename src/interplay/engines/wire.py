"""An HTTP client for an engine's server. It sends and receives JSON, with a time limit on every call.

Calls run on a separate event loop. So connections stay open when the caller's event loop ends, and the learner's thread
can make calls while episodes wait for answers. Every failure is an `EngineError` that names the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from interplay.engines.loop_thread import LoopThread
from interplay.errors import ConfigError, EngineError

T = TypeVar("T")
_IDLE = 2.0  # seconds after which an idle connection is not used again
_SHOWN = 300  # number of characters of a server's answer that an error shows


class ServerFailed(EngineError):
    """The connection was lost, or the server reported an internal failure. The server may have ended."""


class Wire:
    def __init__(self, url: str, connections: int) -> None:
        try:
            import httpx
        except ImportError:
            raise ConfigError("an engine on a server needs the httpx package: pip install 'interplay[vllm]'.") from None
        self.url, self._errors = url.rstrip("/"), httpx.HTTPError
        # Servers close idle connections (uvicorn after 5 s). A request on a closed connection would be lost.
        limits = httpx.Limits(
            max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=_IDLE
        )
        # A request waits for a free connection in this client. Its time limit begins when it is sent.
        self._client = httpx.AsyncClient(base_url=self.url, limits=limits, timeout=None, trust_env=False)
        self._loop = LoopThread("interplay-wire")
        self._closed = False

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the wire's event loop."""
        return self._loop.start(work)

    async def get(self, path: str, limit: float) -> Any:
        return await self._send("GET", path, limit, {})

    async def post(self, path: str, limit: float, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Send a POST request and return the decoded answer; None if the answer has no body."""
        return await self._send("POST", path, limit, {"json": body, "params": query})

    async def _send(self, method: str, path: str, limit: float, options: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(limit):
                answer = await self._client.request(method, path, **options)
        except TimeoutError:
            raise EngineError(
                f"the engine at {self.url} gave no answer to {path} within {limit:g} s; check the server, or raise "
                "engine.timeout (for replies) or engine.update_timeout (for updates)."
            ) from None
        except self._errors as error:
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise ServerFailed(
                f"the engine at {self.url} gave no answer to {path} ({what}); check that the server runs."
            ) from None
        if answer.status_code != 200:
            words = " ".join(answer.text.split())[:_SHOWN]
            kind = ServerFailed if answer.status_code >= 500 else EngineError
            raise kind(f"the engine at {self.url} answered {path} with status {answer.status_code}: {words}")
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            return answer.text

    def close(self) -> None:
        """Cancel the calls in flight and close the connections."""
        if not self._closed:
            self._closed = True
            self._loop.close(self._client.aclose())

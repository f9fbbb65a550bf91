"""A small HTTP/1.1 server on asyncio streams. It supports only what clients of chat APIs use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

LARGEST = 8 << 20  # the largest body, in bytes
_HEAD = 64 << 10
_REASONS = {
    200: "OK", 201: "Created", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 410: "Gone", 413: "Content Too Large", 500: "Internal Server Error", 502: "Bad Gateway",
    503: "Service Unavailable",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    headers: Mapping[str, str]  # the names are in lower case
    body: bytes
    lost: asyncio.Event  # set when the client has closed the connection

    def json(self) -> Mapping[str, Any]:
        found = json.loads(self.body or b"{}")
        if not isinstance(found, dict):
            raise ValueError("the body is no JSON object")
        return found

    @property
    def key(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ").strip()


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A reply with a body, or with `events`, which are sent as a stream of server-sent events."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Iterable[str] | None = None

    @staticmethod
    def json(value: Any, status: int = 200, **headers: str) -> HttpReply:
        return HttpReply(status, json.dumps(value).encode(), headers=headers)

    @staticmethod
    def error(status: int, sentence: str, code: str = "", retry: bool = False) -> HttpReply:
        """An error in OpenAI's format. Unless `retry` is set, a header tells the client not to try again."""
        told = {"message": sentence, "type": "invalid_request_error", "code": code or None, "param": None}
        return HttpReply.json({"error": told}, status, **({} if retry else {"x-should-retry": "false"}))


Handler = Callable[[HttpRequest], Awaitable[HttpReply]]


class HttpError(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class HttpServer:
    """Serve `handler` on a port (0: any free port), and also on a Unix socket if `start` gets its path."""

    def __init__(self, handler: Handler, host: str = "127.0.0.1", port: int = 0) -> None:
        self.handler, self.host, self.port = handler, host, port
        self._servers: list[asyncio.AbstractServer] = []
        self._open: set[asyncio.StreamWriter] = set()
        self.busy = 0

    async def start(self, socket: str = "") -> None:
        server = await asyncio.start_server(self._connection, self.host, self.port, limit=_HEAD, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        self._servers.append(server)
        if socket:
            unix = await asyncio.start_unix_server(self._connection, socket, limit=_HEAD, backlog=2048)
            self._servers.append(unix)

    async def stop(self, patience: float = 0.0) -> None:
        """Accept no more connections, wait at most `patience` seconds for requests in flight, then close them."""
        for server in self._servers:
            server.close()
        until = asyncio.get_running_loop().time() + patience
        while self.busy and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        for writer in list(self._open):
            writer.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        begun = b""
        try:
            while True:
                try:
                    request = await _read(reader, begun)
                except HttpError as error:
                    await _write(writer, HttpReply.error(error.status, str(error)))
                    return
                if request is None:
                    return
                begun = await self._serve(request, reader, writer)
                if request.headers.get("connection", "").lower() == "close" or request.lost.is_set():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
            with suppress(ConnectionError, OSError):
                await writer.wait_closed()

    async def _serve(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """Answer one request, and set `request.lost` if the client closes the connection before the answer. Return the
        first byte of the next request if it has arrived already."""
        self.busy += 1
        watch = asyncio.ensure_future(reader.read(1))
        work = asyncio.ensure_future(self.handler(request))
        try:
            await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
            if watch.done() and not watch.exception() and not watch.result():
                request.lost.set()
            reply = await work
            if not request.lost.is_set():
                await _write(writer, reply)
        finally:
            self.busy -= 1
            if not watch.done():
                watch.cancel()
            work.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            return await watch
        return b""


async def _read(reader: asyncio.StreamReader, begun: bytes) -> HttpRequest | None:
    try:
        head = begun + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise HttpError(400, "the request ends in its headers.") from None
        return None
    except asyncio.LimitOverrunError:
        raise HttpError(413, f"the headers are larger than {_HEAD:,} bytes.") from None
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise HttpError(400, "the first line is no HTTP request.")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    body = await _body(reader, headers)
    return HttpRequest(parts[0], parts[1].partition("?")[0], headers, body, asyncio.Event())


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            if len(body) + size > LARGEST:
                raise HttpError(413, f"the body is larger than {LARGEST:,} bytes.")
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body
    length = headers.get("content-length", "0")
    if not length.isdecimal():
        raise HttpError(400, f"content-length is '{length}'; expected a number.")
    if int(length) > LARGEST:
        raise HttpError(413, f"the body has {int(length):,} bytes; at most {LARGEST:,} are read.")
    return await reader.readexactly(int(length)) if int(length) else b""


async def _write(writer: asyncio.StreamWriter, reply: HttpReply) -> None:
    head = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, '')}"]
    if reply.events is None:
        head += [f"content-type: {reply.kind}", f"content-length: {len(reply.body)}"]
    else:
        head += ["content-type: text/event-stream", "cache-control: no-cache", "transfer-encoding: chunked"]
    head += [f"{name}: {value}" for name, value in reply.headers.items()]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + reply.body)
    if reply.events is not None:
        for event in reply.events:
            data = event.encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        writer.write(b"0\r\n\r\n")
    await writer.drain()

"""A small HTTP/1.1 server on asyncio protocols. It supports only what clients of chat APIs use."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from interplay.errors import EngineError

LARGEST = 8 << 20  # the largest body, in bytes
_HEAD = 64 << 10
_PATIENCE = 30.0  # seconds after which the connection of a request that was refused is closed
_LEFT_OPEN = 64  # the most connections that an idle process has
_DIGITS = 20  # the most digits of a body's length
_SIZE = 1 << 10  # the most bytes of a chunk's size and its line end
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
    lost: asyncio.Future[None]  # done when the connection is closed
    name: str = ""  # of the socket that accepted the connection, see `HttpServer.adopt`

    def json(self) -> Mapping[str, Any]:
        found = json.loads(self.body or b"{}")
        if not isinstance(found, dict):
            raise ValueError(f"it is a JSON {type(found).__name__}")
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
    """Serve `handler` on a port (0: any free port), and on every listening socket that `adopt` is given."""

    def __init__(self, handler: Handler, host: str = "127.0.0.1", port: int = 0) -> None:
        self.handler, self.host, self.port = handler, host, port
        self._servers: dict[str, asyncio.AbstractServer] = {}
        self._open: set[_Connection] = set()
        self.busy = 0

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(self._connection, self.host, self.port, backlog=2048)
        except OSError as error:
            why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise EngineError(
                f"the server cannot listen on port {self.port} of '{self.host}' ({why}); expected an address of this "
                "machine and a port that no other program uses: choose another."
            ) from None
        self.port = server.sockets[0].getsockname()[1]
        self._servers[""] = server

    async def adopt(self, listener: socket.socket, name: str) -> None:
        """Also accept connections of a socket that already listens. It may belong to another network namespace. Its
        requests have this name."""
        made = functools.partial(self._connection, name)
        server = await asyncio.get_running_loop().create_server(made, sock=listener, backlog=2048)
        self.abandon(name)  # the process that listened there before has ended
        self._servers[name] = server

    def abandon(self, name: str) -> None:
        """Accept no more connections of a socket that was adopted with this name."""
        if (server := self._servers.pop(name, None)) is not None:
            server.close()

    def is_idle(self, key: str) -> bool:
        """Whether no request with this key is arriving or waits for its answer, and few connections are left open. A
        process whose key this is may be alone in its network: then all connections from there are its own. Otherwise a
        connection may be its own if the head of its request names the key, or has not arrived completely."""
        own = [c for c in self._open if c.name == key]
        if len(own) > _LEFT_OPEN or any(c.begun is not None for c in own):
            return False
        shared = () if key in self._servers else self._open
        return not any(c.begun is not None and (not c.begun or key in c.begun) for c in shared)

    async def stop(self, patience: float = 0.0) -> None:
        """Accept no more connections, wait at most `patience` seconds for requests in flight, then close them."""
        for server in self._servers.values():
            server.close()
        until = asyncio.get_running_loop().time() + patience
        while self.busy and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        for connection in list(self._open):
            connection.close()

    def _connection(self, name: str = "") -> _Connection:
        return _Connection(self, name)


class _Connection(asyncio.Protocol):
    """One connection. Its requests are answered one after another; one task serves each of them."""

    def __init__(self, server: HttpServer, name: str) -> None:
        self._server, self.name = server, name
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._data = bytearray()
        self._head: _Head | None = None  # of the request whose body has not arrived completely
        self._chunks = _Chunks()  # of this request, if it comes in chunks
        self._whose = ""  # the path and the key of the newest request
        self._refused = False  # the rest of what the client sends is not read
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server._open.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server._open.discard(self)
        self._transport = None
        if not self._lost.done():
            self._lost.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    @property
    def begun(self) -> str | None:
        """The path and the key of the request that is arriving or waits for its answer. They are empty while its head
        has not arrived completely. None: there is no such request."""
        if self._head is not None or self._task is not None:
            return self._whose
        return "" if self._data else None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._data += data
        if self._task is None:
            self._next()
        elif len(self._data) > LARGEST and self._transport is not None:
            self._transport.pause_reading()

    def _next(self) -> None:
        """Start to serve the next request if it has arrived completely."""
        try:
            request = self._request()
        except HttpError as error:
            self._refuse(HttpReply.error(error.status, str(error)))
            return
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._serve(request))

    def _refuse(self, reply: HttpReply) -> None:
        """Answer a request that cannot be read. A client reads the answer only after it has sent everything, so what it
        still sends is thrown away for a while. If the connection were closed at once, the client would see an error of
        the connection, and try again."""
        self._refused = True
        self._data.clear()
        self._write(replace(reply, headers={**reply.headers, "connection": "close"}))
        if self._transport is not None:
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(_PATIENCE, self.close)

    def _request(self) -> HttpRequest | None:
        if self._head is None:
            end = self._data.find(b"\r\n\r\n")
            if end > _HEAD or (end < 0 and len(self._data) > _HEAD):
                raise HttpError(413, f"the headers are larger than {_HEAD:,} bytes.")
            if end < 0:
                return None
            self._head = _head_of(bytes(self._data[:end]))
            self._whose = f"{self._head.path} {self._head.headers.get('authorization', '')}"
            del self._data[: end + 4]
        head = self._head
        body = self._chunks.taken(self._data) if head.length is None else _counted(self._data, head.length)
        if body is None:
            return None
        self._head = None
        return HttpRequest(head.method, head.path, head.headers, body, self._lost, self.name)

    async def _serve(self, request: HttpRequest) -> None:
        server = self._server
        server.busy += 1
        try:
            self._write(await server.handler(request))
        except BaseException:
            self.close()
            raise
        finally:
            server.busy -= 1
            self._task = None
        if request.headers.get("connection", "").lower() == "close":
            self.close()
        elif self._transport is not None:
            self._transport.resume_reading()
            self._next()

    def _write(self, reply: HttpReply) -> None:
        if self._transport is not None:
            self._transport.write(_written(reply))


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    headers: Mapping[str, str]
    length: int | None  # of the body, in bytes; None: it comes in chunks


def _head_of(data: bytes) -> _Head:
    first, *lines = data.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3:
        raise HttpError(400, "the first line is no HTTP request.")
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
    path = parts[1].partition("?")[0]
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return _Head(parts[0], path, headers, None)
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > _DIGITS:
        raise HttpError(400, f"content-length is '{length[:_DIGITS]}'; expected a number of at most {_DIGITS} digits.")
    if int(length) > LARGEST:
        raise HttpError(413, f"the body has {int(length):,} bytes; at most {LARGEST:,} are read.")
    return _Head(parts[0], path, headers, int(length))


def _counted(data: bytearray, length: int) -> bytes | None:
    """Take a body of `length` bytes from `data`; None if it has not arrived completely."""
    if len(data) < length:
        return None
    body = bytes(data[:length])
    del data[:length]
    return body


class _Chunks:
    """Reads bodies that are sent in chunks. Each chunk is read once, as soon as it has arrived."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._read = 0  # bytes of the body's chunks, with their sizes

    def taken(self, data: bytearray) -> bytes | None:
        """Take the chunks from `data` that have arrived. Return the body after its last chunk, otherwise None."""
        at, last = 0, False
        while not last and (line := data.find(b"\r\n", at, at + _SIZE)) >= 0:
            size = _size_of(data[at:line])
            end = line + 2 + size
            if self._read + end > LARGEST:
                raise HttpError(413, f"the body is larger than {LARGEST:,} bytes.")
            if len(data) < end + 2:
                break
            self._body += data[line + 2 : end]
            at, last = end + 2, not size
        else:
            if not last and len(data) - at >= _SIZE:
                raise HttpError(400, f"the size of a chunk is longer than {_SIZE:,} bytes.")
        del data[:at]
        self._read += at
        if not last:
            return None
        body, self._body, self._read = bytes(self._body), bytearray(), 0
        return body


def _size_of(line: bytes | bytearray) -> int:
    """The size of a chunk, from the line before it."""
    with suppress(ValueError):
        if (size := int(line.split(b";")[0], 16)) >= 0:
            return size
    raise HttpError(400, "a chunk has no size; expected a hexadecimal number.")


def _written(reply: HttpReply) -> bytes:
    head = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, '')}"]
    if reply.events is None:
        head += [f"content-type: {reply.kind}", f"content-length: {len(reply.body)}"]
    else:
        head += ["content-type: text/event-stream", "cache-control: no-cache", "transfer-encoding: chunked"]
    head += [f"{name}: {value}" for name, value in reply.headers.items()]
    out = ["\r\n".join([*head, "", ""]).encode("latin-1"), reply.body]
    if reply.events is not None:
        for event in reply.events:
            data = event.encode()
            out.append(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        out.append(b"0\r\n\r\n")
    return b"".join(out)

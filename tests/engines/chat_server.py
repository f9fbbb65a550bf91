"""A real HTTP server for chat completions, which misbehaves on request."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ECHO = b"$KEY"  # in what goes wrong: the Authorization header that came
Wrong = Callable[["Handler"], None]


@dataclass
class Chat:
    """`script` holds the failures that come before answers, in order: a status or a function of the handler."""

    answer: Callable[[dict[str, Any]], str] = lambda body: "1"
    script: list[int | Wrong] = field(default_factory=list)
    hold: float = 0.0  # seconds that every answer takes
    reply: dict[str, Any] = field(default_factory=dict)  # over the fields of a choice
    headers: dict[str, str] = field(default_factory=dict)  # of failures
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    running: int = 0
    most: int = 0
    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: Any = field(default_factory=threading.Lock)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    chat: Chat

    def do_POST(self) -> None:
        chat = self.chat
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with chat.lock:
            chat.bodies.append(body)
            chat.keys.append(self.headers.get("Authorization"))
            chat.heads.append({name.lower(): value for name, value in self.headers.items()})
            wrong = chat.script.pop(0) if chat.script else None
            chat.running += 1
            chat.most = max(chat.most, chat.running)
        try:
            if wrong is None:
                chat.stopped.wait(chat.hold)
                self.send(200, completion(chat.answer(body), **chat.reply))
            elif isinstance(wrong, int):
                self.send(wrong, error(f"a {wrong} on purpose."), chat.headers)
            else:
                wrong(self)
        finally:
            with chat.lock:
                chat.running -= 1

    def send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Sends a whole response. If its body echoes the key, a header and the reason after the status do so too."""
        echoes = ECHO in data
        data = data.replace(ECHO, json.dumps(self.key)[1:-1].encode() if _is_json(data) else self.key.encode())
        head = {"Content-Length": len(data), **({"X-Echo": self.key} if echoes else {}), **(headers or {})}
        lines = [f"HTTP/1.1 {status} {self.key if echoes else 'Reason'}", *(f"{n}: {v}" for n, v in head.items())]
        self.raw("\r\n".join([*lines, "", ""]).encode() + data)

    def raw(self, data: bytes) -> None:
        self.wfile.write(data.replace(ECHO, self.key.encode()))
        self.wfile.flush()

    @property
    def key(self) -> str:
        return self.headers.get("Authorization") or "no key"

    def leave(self, reset: bool = False) -> None:
        """Closes the connection; with `reset`, without a proper shutdown."""
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def completion(text: Any = "hello", used: Any = None, **choice: Any) -> bytes:
    """The body of a good answer, unless the arguments change it; `used` is `len(text) + 1` by default."""
    used = len(text) + 1 if used is None else used
    first = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **choice}
    return json.dumps({"choices": [first], "usage": {"completion_tokens": used}}).encode()


def error(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # with the default of 5, connections that arrive together are reset on a busy machine


@contextmanager
def serving(chat: Chat) -> Iterator[Chat]:
    bound = type("Bound", (Handler,), {"chat": chat})
    server = _Server(("127.0.0.1", 0), bound)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that left is part of the test
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield chat
    finally:
        chat.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()

"""A real HTTP server that speaks chat completions, and misbehaves when told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Chat:
    """`script` holds what goes wrong, in order, before answers come: a status, "hang", "drop", or raw bytes."""

    answer: Callable[[dict[str, Any]], str] = lambda body: "1"
    script: list[Any] = field(default_factory=list)
    hold: float = 0.0  # seconds that every answer takes
    usage: bool = True
    reply: dict[str, Any] = field(default_factory=dict)  # over the fields of a choice
    headers: dict[str, str] = field(default_factory=dict)  # of failures
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    running: int = 0
    most: int = 0
    url: str = ""
    lock: Any = field(default_factory=threading.Lock)


@contextmanager
def serving(chat: Chat) -> Iterator[Chat]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with chat.lock:
                chat.bodies.append(body)
                chat.keys.append(self.headers.get("Authorization"))
                chat.times.append(time.monotonic())
                wrong = chat.script.pop(0) if chat.script else None
                chat.running += 1
                chat.most = max(chat.most, chat.running)
            try:
                self.misbehave(wrong) if wrong is not None else self.serve(body)
            finally:
                with chat.lock:
                    chat.running -= 1

        def serve(self, body: dict[str, Any]) -> None:
            time.sleep(chat.hold)
            text = chat.answer(body)
            choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", **chat.reply}
            usage = {"usage": {"completion_tokens": len(text) + 1}} if chat.usage else {}
            self.send(200, json.dumps({"choices": [choice], **usage}).encode())

        def misbehave(self, wrong: Any) -> None:
            if wrong == "hang":
                time.sleep(1.0)
                self.close_connection = True
            elif wrong == "drop":  # in the middle of an answer
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{")
                self.close_connection = True
            elif isinstance(wrong, bytes):
                self.send(200, wrong)
            else:
                self.send(wrong, json.dumps({"error": {"message": f"a {wrong} on purpose."}}).encode())

        def send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            for name, value in (chat.headers if status != 200 else {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that left is part of the test
    chat.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield chat
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

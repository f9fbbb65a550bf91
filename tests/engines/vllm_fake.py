"""An HTTP server that answers in the shapes of vLLM 0.32.0, which test_vllm_live.py asks for the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlsplit

from chat_server import Server

PATHS_0_25 = (
    "/inference/v1/generate", "/collective_rpc", "/pause", "/resume", "/reset_prefix_cache", "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter", "/v1/models", "/health",
)  # fmt: skip
PATHS_0_32 = (*PATHS_0_25, "/update_weight_version")


@dataclass
class Fake:
    """`calls` are (path, query, body) in the order of arrival. `hold` blocks the paths in it until they are taken out;
    `failing` paths answer with status 500."""

    replies_at: ClassVar[str] = "/inference/v1/generate"
    paths: tuple[str, ...] = PATHS_0_32
    reply: tuple[int, ...] = (11, 12, 13)
    spans: list[dict[str, Any]] | None = None  # weight_versions of a reply; None: the server has no such field
    reason: str = "stop"
    context: int = 64  # tokens
    calls: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    hold: dict[str, threading.Event] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    url: str = ""

    def asked(self, path: str) -> list[dict[str, Any]]:
        return [body for name, _, body in list(self.calls) if name == path]

    def did(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that is not for a reply."""
        return {"status": "ok"}

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        content = [
            {"token": f"token_id:{t}", "logprob": -0.5 - i, "bytes": None, "top_logprobs": []}
            for i, t in enumerate(self.reply)
        ]
        wanted = body["sampling_params"].get("logprob_token_ids")
        if wanted:  # as 0.32 and 0.25 write it: the sampled token first
            new = "/update_weight_version" in self.paths
            name = (lambda t: {"token_id": t}) if new else (lambda t: {"token": f"token_id:{t}"})
            content[0]["top_logprobs"] = [{**name(t), "logprob": -float(t)} for t in (self.reply[0], *wanted)][:2]
        choice = {"index": 0, "token_ids": list(self.reply), "finish_reason": self.reason}
        choice |= {"logprobs": {"content": content}}
        if self.spans is not None:
            choice["weight_versions"] = self.spans
        return {"request_id": "r", "choices": [choice], "prompt_logprobs": None, "usage": None}


AnyFake = TypeVar("AnyFake", bound=Fake)


class FakeHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: Fake

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.give(200, {"object": "list", "data": [{"id": "base", "max_model_len": self.fake.context}]})
        elif self.path == "/openapi.json":
            self.give(200, {"paths": {path: {} for path in self.fake.paths}})
        else:
            self.give(200, {})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        where = urlsplit(self.path)
        body = json.loads(raw) if raw else {}
        self.fake.calls.append((where.path, dict(parse_qsl(where.query)), body))
        if where.path in self.fake.hold:
            self.fake.hold[where.path].wait(60.0)
        if where.path in self.fake.failing:
            self.give(500, {"error": {"message": "failed on purpose"}})
        elif where.path not in self.fake.paths:
            self.give(404, {"detail": "Not Found"})
        else:
            reply = where.path == self.fake.replies_at
            self.give(200, self.fake.answer(body) if reply else self.fake.did(where.path, body))

    def give(self, status: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        try:
            self.wfile.write(text)
        except OSError:  # the client has given up
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(fake: AnyFake) -> Iterator[AnyFake]:
    """A server that answers as `fake` says."""
    handler = type("Bound", (FakeHandler,), {"fake": fake})
    server = Server(("127.0.0.1", 0), handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        for event in fake.hold.values():
            event.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def fake_vllm(**settings: Any) -> Iterator[Fake]:
    with serving(Fake(**settings)) as fake:
        yield fake

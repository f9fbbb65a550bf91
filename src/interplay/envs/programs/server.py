"""The paths of the OpenAI-compatible server.

Each key belongs to an `Answerer`: an episode that is being played (`gateway.py`), or the trained team in production
(`interplay serve`). Paths are `/v1/...` with the key as API key, or `/s/KEY/v1/...`.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from interplay.envs.programs.http import HttpReply, HttpRequest
from interplay.envs.programs.run import Reply
from interplay.envs.programs.talk import Names, WireError
from interplay.envs.programs.wire import ChatOrder, chat_order, responses_order
from interplay.envs.programs.written import chat_answer, chat_chunks, response, response_events
from interplay.errors import ConfigError, InterplayError, RequestError
from interplay.fetch import answer_to
from interplay.secret import read_key
from interplay.types import HistoryMatch, Message

KEPT = 1000  # responses of one key that `previous_response_id` can name
EMBEDDINGS_KEY = "INTERPLAY_EMBEDDINGS_KEY"
_EMBEDDING_SECONDS, _MOST_EMBEDDED = 60.0, 64 * 2**20  # of an answer with embeddings: its time, and its bytes


class GoneError(InterplayError):
    """The episode behind a key has ended."""


class Answerer(Protocol):
    """Answers the requests with one key."""

    names: Names
    history: HistoryMatch
    models: Sequence[str]
    embeddings: str
    said: Conversations

    async def answers(self, order: ChatOrder, digest: str, retry: bool, lost: asyncio.Future[None]) -> list[Reply]:
        """Return `order.n` answers. `digest` is the digest of the request's body; a `retry` with the same digest joins
        a call whose client has gone. Raises `WireError` for a request that cannot be served, and `GoneError` after the
        end of the episode."""
        ...


@dataclass
class Conversations:
    """The conversations of one key, by the names of the responses that ended them; the oldest are forgotten."""

    by_name: OrderedDict[str, tuple[Message, ...]] = field(default_factory=OrderedDict)
    count: int = 0

    def keep(self, name: str, messages: tuple[Message, ...]) -> None:
        self.by_name[name] = messages
        if len(self.by_name) > KEPT:
            self.by_name.popitem(last=False)

    def before(self, name: object) -> tuple[Message, ...]:
        if name is None:
            return ()
        if name not in self.by_name:
            raise WireError(f"previous_response_id is '{name}', which is not known (any more); send all messages.")
        return self.by_name[str(name)]


class ChatRouter:
    """`find` returns the answerer of a key, or raises `GoneError` if its episode has ended. `allowed` says whether
    requests with this header Host are served."""

    def __init__(self, find: Callable[[str], Answerer | None], allowed: Callable[[str], bool]) -> None:
        self.find, self.allowed = find, allowed

    async def __call__(self, request: HttpRequest) -> HttpReply:
        if "origin" in request.headers or not self.allowed(request.headers.get("host", "")):
            return HttpReply.error(403, "requests of web pages, or to another host's name, are not served.")
        parts = request.path.strip("/").split("/")
        key, path = (parts[1], parts[2:]) if parts[0] == "s" and len(parts) > 2 else (request.key, parts)
        what = "/".join(path[1:] if path[:1] == ["v1"] else path)
        try:
            answerer = self.find(key)
            if answerer is None:
                return HttpReply.error(401, "the API key is not known here; expected that of the session.")
            return await self._routed(request, what, answerer)
        except (WireError, ConfigError, RequestError) as error:  # it would fail again, so a client must not ask again
            return HttpReply.error(400, str(error))
        except GoneError as error:
            return HttpReply.error(410, str(error))
        except InterplayError as error:
            return HttpReply.error(503, str(error))

    async def _routed(self, request: HttpRequest, what: str, answerer: Answerer) -> HttpReply:
        if request.method == "GET" and what == "models":
            rows = [{"id": m, "object": "model", "created": 0, "owned_by": "interplay"} for m in answerer.models]
            return HttpReply.json({"object": "list", "data": rows})
        if request.method != "POST":
            return HttpReply.error(404, f"{request.method} {request.path} is not served.")
        if what == "embeddings":
            return await asyncio.to_thread(_passed_on, answerer.embeddings, request.body)
        try:
            body = _encodable(request)
        except (ValueError, RecursionError) as error:
            return HttpReply.error(400, f"the body cannot be read: {error}; expected a JSON object.")
        if what not in ("chat/completions", "responses"):
            return HttpReply.error(404, f"POST {request.path} is not served; known: chat/completions, responses.")
        return await self._answered(request, _order(what, body, answerer), answerer)

    async def _answered(self, request: HttpRequest, order: ChatOrder, answerer: Answerer) -> HttpReply:
        digest = hashlib.blake2b(request.body, digest_size=16).hexdigest()
        retry = request.headers.get("x-stainless-retry-count", "0") != "0"
        answers = await answerer.answers(order, digest, retry, request.lost)
        if refused := next((a.spoken.refused for a in answers if a.spoken.refused), ""):
            return HttpReply.error(400, refused, "context_length_exceeded")
        answerer.said.count += 1
        name = hashlib.blake2b(f"{digest}/{answerer.said.count}".encode(), digest_size=12).hexdigest()
        if order.api == "chat":
            if order.stream:
                return HttpReply(events=chat_chunks(order, name, answers))
            return HttpReply.json(chat_answer(order, name, answers))
        spoken = answers[0].spoken
        reply = Message("assistant", spoken.content, tool_calls=spoken.calls)
        answerer.said.keep(f"resp_{name}", (*order.messages, reply))
        if order.stream:
            return HttpReply(events=response_events(order, name, answers[0]))
        return HttpReply.json(response(order, name, answers[0]))


def _encodable(request: HttpRequest) -> Mapping[str, Any]:
    """The body of a request. Half of a surrogate pair, which JSON can contain but no tokenizer can encode, becomes a
    question mark."""
    body = request.json()
    if b"\\ud" in request.body or b"\\uD" in request.body:
        written = json.dumps(body, ensure_ascii=False)
        try:
            written.encode()
        except UnicodeEncodeError:
            return dict(json.loads(written.encode("utf-8", "replace")))
    return body


def _order(what: str, body: Mapping[str, Any], answerer: Answerer) -> ChatOrder:
    """The order in a body. `WireError` if a field has another type than the API says, or a schema contains itself."""
    try:
        if what == "chat/completions":
            return chat_order(body, answerer.names, answerer.history)
        before = answerer.said.before(body.get("previous_response_id"))
        return responses_order(body, before, answerer.names, answerer.history)
    except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
        raise WireError(f"the body is not in the format of {what}: {error}; expected OpenAI's.") from None


def _passed_on(url: str, body: bytes) -> HttpReply:
    """Forward a request for embeddings to the user's own server."""
    if not url:
        return HttpReply.error(404, "embeddings are not served; expected env.program.embeddings, a server's URL.")
    request = urllib.request.Request(f"{url.rstrip('/')}/embeddings", body, {"content-type": "application/json"})
    key = read_key(EMBEDDINGS_KEY, "the server of embeddings")
    if key:
        request.add_unredirected_header("authorization", f"Bearer {key.reveal()}")
    try:
        found = answer_to(request, _EMBEDDING_SECONDS, _MOST_EMBEDDED)
        if len(found) > _MOST_EMBEDDED:
            words = f"the server of embeddings answered with more than {_MOST_EMBEDDED:,} bytes."
            return HttpReply.error(502, words)
        return HttpReply(200, key.hide(found.decode("utf-8", "replace")).encode())
    except urllib.error.HTTPError as error:
        words = key.hide(error.read(_MOST_EMBEDDED).decode("utf-8", "replace") or json.dumps({"error": str(error)}))
        return HttpReply(error.code, words.encode())
    except (OSError, http.client.HTTPException) as error:
        words = key.hide(f"the server of embeddings cannot be reached: {error}.")
        return HttpReply.error(502, words, retry=True)

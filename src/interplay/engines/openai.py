"""A model on an OpenAI-compatible server (`POST /chat/completions`), as an `Engine`.

It takes messages and returns text. It returns no token ids and no log-probs, so it can play but not be trained.

Every failure is a `RemoteError`: no connection, an error status, or an incomplete answer (`answer.py`). The `openai`
package's client (`client.py`) retries after failures that may be temporary, at most `remote.retries` times. A failed
answer is never replaced by a made-up one.

Requests run on an event loop of the engine's own, so that connections outlive the caller's event loop. The key is read
from an environment variable, sent to the server, and never shown: server texts are masked before they are raised, and
no exception of the HTTP libraries is chained to ours (`secret.py`).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

from interplay.config import RemoteSection
from interplay.engines.answer import BadAnswer, words_of
from interplay.engines.census import census
from interplay.engines.client import TRIES, chat_client
from interplay.engines.engine import Capabilities, EngineLimits, EngineStats, Request
from interplay.engines.loop_thread import LoopThread
from interplay.errors import ConfigError, EngineError, RemoteError
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded
from interplay.secret import masked, read_key
from interplay.types import Completion, MediaSpan, Message, Stop

_SHOWN = 200  # characters of a server's text that an error shows


class RemoteEngine:
    """`model` is the server's name for the model."""

    def __init__(self, model: str, section: RemoteSection) -> None:
        self.model, self.section = model, section
        self.capabilities = Capabilities(
            token_ids=False, logprobs=False, media=frozenset({"image"} if section.images else ())
        )
        self.version = 0
        self._sampled = 0
        self._asked: dict[Future[Completion], tuple[object, ...]] = {}
        self._secret = read_key(section.key_variable, f"'{model}'")
        if not self._secret and section.key_variable != RemoteSection().key_variable:
            raise ConfigError(
                f"the key of '{model}' is read from the environment variable {section.key_variable}, which is not set; "
                "set it, or remove remote.key_variable if the server needs no key."
            )
        self._client = chat_client(section, self._secret)
        self._open = ExitStack()
        self._open.enter_context(masked(self._secret))
        self._gate = asyncio.Semaphore(section.concurrency)
        self._closed = False
        self._loop = LoopThread("interplay-remote")

    async def generate(self, request: Request) -> Completion:
        if not request.messages:
            raise EngineError(f"remote model '{self.model}' got a request without messages; expected at least one.")
        if request.legal or request.forced:
            raise EngineError(
                f"remote model '{self.model}' cannot be restricted to given replies; set sampling.legal = false."
            )
        if self._closed:
            raise EngineError("the engine is closed; make a new one.")
        asked: Future[Completion] = self._loop.start(self._ask(request))
        self._asked[asked] = request.key
        try:
            return await census().elsewhere(asyncio.wrap_future(asked))
        except asyncio.CancelledError:
            if self._closed:
                raise EngineError("the engine was closed while this request was in flight.") from None
            raise
        finally:
            del self._asked[asked]

    async def _ask(self, request: Request) -> Completion:
        sampling = request.sampling
        fields = {
            "temperature": sampling.temperature,
            self.section.limit: sampling.max_tokens,
            "seed": request.seed % 2**31,
            **({"stop": list(sampling.stop_strings)} if sampling.stop_strings else {}),
            **self.section.options,
        }
        messages = [{"role": m.role, "content": self._content(m)} for m in request.messages]
        try:
            async with self._gate:
                found = await self._client.chat.completions.create(
                    model=self.model, messages=messages, extra_body=fields
                )
        except Exception as error:  # every error of the HTTP libraries is a failure of this answer
            failure = self._sentence(error)
        else:
            choice, used = found.choices[0], found.usage.completion_tokens
            self._sampled += used
            stop = Stop.LENGTH if choice.finish_reason == "length" else Stop.END
            return Completion((), (), (), stop, choice.message.content, used)
        raise RemoteError(failure)  # outside of the except block, so that the library's exception is not chained to it

    def _sentence(self, error: Exception) -> str:
        import openai

        cause = error.__cause__ or error
        words = ""
        if isinstance(error, openai.APIStatusError):
            what, words = self._refused(error.status_code), words_of(error.response.content)
        elif isinstance(error, openai.APITimeoutError):
            what = f"gave no answer within {self.section.timeout:g} s"
        elif isinstance(cause.__cause__, BadAnswer):
            what, words = cause.__cause__.what, cause.__cause__.words
        else:
            what, words = "gave no answer", f"{type(cause).__name__}: {cause}".removesuffix(": ")
        tries = 1
        if isinstance(error, openai.APIError):
            tries += int(error.request.headers.get(TRIES, "0"))
        said = f": {_shortened(self._secret.hide(words))}" if words else ""
        return f"{self} {what}{said}{f' (tried {tries} times)' if tries > 1 else ''}."

    def _refused(self, status: int) -> str:
        if status in (401, 403):
            return (
                f"refused the key (status {status}; the key is read from the environment variable "
                f"{self.section.key_variable})"
            )
        if 300 <= status < 400:
            return f"redirected the request (status {status}; set remote.url to the address that answers)"
        return f"answered with status {status}"

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        """The text of a message; with images, a list of parts."""
        images = [m.data for m in message.media if m.kind == "image"]
        if not images or not self.section.images:
            return message.content
        urls = (f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in images)
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return [{"type": "text", "text": message.content}, *pictures]

    async def score(
        self,
        ids: tuple[int, ...],
        replies: Sequence[tuple[int, ...]],
        adapter: str | None = None,
        media: tuple[MediaSpan, ...] = (),
    ) -> list[tuple[float, ...]]:
        raise EngineError(f"remote model '{self.model}' gives no log-probs; expected a local model.")

    def flush(self) -> None:
        """Does nothing: the server has its own cache."""

    def update(self, version: int, source: Loaded | None = None) -> None:
        raise EngineError(f"the weights of remote model '{self.model}' cannot be updated; expected a local model.")

    def cancel(self, key: tuple[object, ...]) -> bool:
        found = [asked for asked, its in list(self._asked.items()) if its == key]
        for asked in found:
            asked.cancel()
        return bool(found)

    def stats(self) -> EngineStats:
        running = min(len(self._asked), self.section.concurrency)
        return EngineStats(sampled_tokens=self._sampled, running=running, waiting=len(self._asked) - running)

    def limits(self) -> EngineLimits:
        return EngineLimits()

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        raise EngineError(f"remote model '{self.model}' takes no adapters; expected a local model.")

    def unload(self, name: str) -> None:
        raise EngineError(f"remote model '{self.model}' takes no adapters; expected a local model.")

    def close(self) -> None:
        """Cancel the requests in flight and close the connections."""
        if self._closed:
            return
        self._closed = True
        self._loop.close(self._client.close())
        self._open.close()

    def __str__(self) -> str:
        return f"remote model '{self.model}' at {self.section.url}"


def _shortened(text: str) -> str:
    """The text on one line without its final full stop, shortened, for the end of a sentence."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text[:_SHOWN].rstrip(".") + ("…" if len(text) > _SHOWN else "") or "nothing"

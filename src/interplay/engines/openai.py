"""Somebody else's model behind an OpenAI-compatible server (`POST /chat/completions`), as an `Engine`.

It takes messages and gives text: no token ids, no log-probs, so it can sit in a seat but not be trained. What can pass
(a lost connection, a time limit, 408, 409, 425, 429, 5xx, a page instead of JSON) is tried again with growing pauses,
or after as long as the server asks for; anything else, and the last failure, is a `RemoteError`. There is no made-up
answer: a reply without text is an error, unless the model itself ended it or ran into its limit.

Requests run on an event loop of the engine's own, so that connections outlive the caller's. The key is read from the
environment, sent to the server, and never shown.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interplay.config import RemoteSection
from interplay.engines.engine import Capabilities, EngineLimits, EngineStats, Request
from interplay.errors import ConfigError, EngineError, RemoteError
from interplay.models.adapter import Adapter
from interplay.types import Completion, Message, Stop

if TYPE_CHECKING:
    import httpx

_AGAIN = {408, 409, 425, 429}  # and every 5xx
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds
_SHOWN = 200  # characters of what a server said


class RemoteEngine:
    """`model` as the server calls it. `pause` is the first wait between two tries; it doubles with each."""

    capabilities = Capabilities(token_ids=False, logprobs=False)

    def __init__(self, model: str, section: RemoteSection, pause: float = _FIRST_PAUSE) -> None:
        try:
            import httpx
        except ImportError:
            raise ConfigError("a remote model needs httpx: pip install 'interplay[remote]'.") from None
        self.model, self.section, self.pause = model, section, pause
        self.version = 0
        self._sampled = 0
        self._asked: dict[Future[Completion], tuple[object, ...]] = {}
        key = os.environ.get(section.key_variable, "")
        if not key and section.key_variable != RemoteSection().key_variable:
            raise ConfigError(
                f"the key of '{model}' is to be in the environment variable {section.key_variable}, which is not set."
            )
        limits = httpx.Limits(max_connections=section.concurrency, max_keepalive_connections=section.concurrency)
        try:
            self._client = httpx.AsyncClient(
                base_url=section.url.rstrip("/") + "/",
                headers={"Authorization": f"Bearer {key}"} if key else {},
                timeout=section.timeout,
                limits=limits,
            )
        except httpx.InvalidURL as error:
            raise ConfigError(f"the url of '{model}' is '{section.url}' ({error}); expected http://HOST/v1.") from None
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Semaphore(section.concurrency)
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="interplay-remote", daemon=True)
        self._thread.start()

    async def generate(self, request: Request) -> Completion:
        if not request.messages:
            raise EngineError(f"remote model '{self.model}' was asked without messages; expected at least one.")
        if request.legal or request.forced:
            raise EngineError(
                f"remote model '{self.model}' cannot be held to given replies; set sampling.legal = false."
            )
        if self._closed:
            raise EngineError("the engine is closed; make a new one.")
        asked: Future[Completion] = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        self._asked[asked] = request.key
        try:
            completion = await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            if self._closed:
                raise EngineError("the engine was closed while this request was in flight.") from None
            raise
        finally:
            del self._asked[asked]
        self._sampled += completion.used
        return completion

    async def _ask(self, request: Request) -> Completion:
        sampling = request.sampling
        body = {
            "model": self.model,
            "messages": [{"role": m.role, "content": self._content(m)} for m in request.messages],
            "temperature": sampling.temperature,
            self.section.limit: sampling.max_tokens,
            "seed": request.seed % 2**31,
            **({"stop": list(sampling.stop_strings)} if sampling.stop_strings else {}),
            **self.section.options,
        }
        jitter = random.Random(request.seed)
        tries = self.section.retries + 1
        async with self._gate:
            for attempt in range(1, tries + 1):
                try:
                    return await self._once(body)
                except _Passing as failure:
                    if attempt == tries:
                        counted = "" if tries == 1 else f" (tried {tries} times)"
                        raise RemoteError(f"{self} {failure}{counted}.") from None
                    wait = min(_LONGEST_PAUSE, self.pause * 2 ** (attempt - 1)) * jitter.uniform(0.5, 1.0)
                    await asyncio.sleep(min(_LONGEST_PAUSE, max(wait, failure.after)))
        raise AssertionError("unreachable")

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        """Its words; with images, a list of parts."""
        images = [m.data for m in message.media if m.kind == "image"]
        if not images or not self.section.images:
            return message.content
        urls = (f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in images)
        pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return [{"type": "text", "text": message.content}, *pictures]

    async def _once(self, body: dict[str, Any]) -> Completion:
        import httpx

        try:
            # httpx limits each read, not the whole: a server that drips one byte at a time must not hold us for ever.
            async with asyncio.timeout(self.section.timeout):
                response = await self._client.post("chat/completions", json=body)
        except (TimeoutError, httpx.TimeoutException):
            raise _Passing(f"gave no answer within {self.section.timeout:g} s") from None
        except httpx.TransportError as error:
            raise _Passing(f"could not be reached ({type(error).__name__}: {error})") from None
        if response.status_code in _AGAIN or response.status_code >= 500:
            raise _Passing(f"answered {response.status_code}: {_shown(response)}", _after(response))
        if response.status_code in (401, 403):
            raise RemoteError(
                f"{self} refused the key ({response.status_code}); set the environment variable "
                f"{self.section.key_variable}."
            )
        if response.status_code != 200:
            raise RemoteError(f"{self} answered {response.status_code}: {_shown(response)}.")
        return self._read(response)

    def _read(self, response: httpx.Response) -> Completion:
        try:
            data = response.json()
            choice = data["choices"][0]
            message, reason = choice["message"], choice.get("finish_reason")
            text = message.get("content")
            text = message.get("refusal") if text is None else text
            used = data["usage"]["completion_tokens"]
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise _Passing(f"answered with something that is no chat completion: {_shown(response)}") from None
        if not isinstance(used, int) or not (text is None or isinstance(text, str)):
            raise _Passing(f"answered with something that is no chat completion: {_shown(response)}")
        if text is None and reason != "length":  # all of its limit went into thinking: the model's own doing
            raise RemoteError(f"{self} answered without text (finish_reason {reason!r}).")
        stop = Stop.LENGTH if reason == "length" else Stop.END
        return Completion((), (), (), stop, text or "", used)

    async def score(
        self, ids: tuple[int, ...], replies: Sequence[tuple[int, ...]], adapter: str | None = None
    ) -> list[tuple[float, ...]]:
        raise EngineError(f"remote model '{self.model}' gives no log-probs; expected a local model.")

    def flush(self) -> None:
        """Nothing of ours is cached there."""

    def update(self, version: int, source: Path | None = None) -> None:
        raise EngineError(f"the weights of remote model '{self.model}' are its owner's; they cannot be updated.")

    def cancel(self, key: tuple[object, ...]) -> bool:
        found = [asked for asked, its in self._asked.items() if its == key]
        for asked in found:
            asked.cancel()
        return bool(found)

    def stats(self) -> EngineStats:
        return EngineStats(sampled_tokens=self._sampled, running=len(self._asked))

    def limits(self) -> EngineLimits:
        return EngineLimits()

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        raise EngineError(f"remote model '{self.model}' takes no adapters; expected a local model.")

    def unload(self, name: str) -> None:
        raise EngineError(f"remote model '{self.model}' takes no adapters; expected a local model.")

    def close(self) -> None:
        """Requests in flight are cancelled."""
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut(self) -> None:
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.aclose()

    def __str__(self) -> str:
        return f"remote model '{self.model}' at {self.section.url}"


class _Passing(Exception):
    """A failure that may be gone at the next try; the server asked to wait `after` seconds."""

    def __init__(self, what: str, after: float = 0.0) -> None:
        super().__init__(what)
        self.after = after


def _shown(response: httpx.Response) -> str:
    """The server's own words: the message of an error object, or the beginning of whatever came."""
    try:
        error = response.json()["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        text = response.text
    text = " ".join(text.split())
    return text[:_SHOWN].rstrip(".") + ("…" if len(text) > _SHOWN else "") or "nothing"


def _after(response: httpx.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("retry-after", 0)))
    except ValueError:  # a date: our own pause will do
        return 0.0

"""An engine on a server: what vLLM and SGLang have in common.

Requests travel as token ids over HTTP (`wire.py`). Each version of an adapter is loaded under a new name, so no request
and no cached prefix mixes two versions. An old version is unloaded when no request uses it. If an update of the weights
fails, the weights of the server are unknown. The engine then accepts no more requests, and stops the server if this run
started it. A server that somebody else started keeps running.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from interplay.engines.census import census
from interplay.engines.engine import Capabilities, EngineLimits, EngineStats, Request
from interplay.engines.refusals import refuse_impossible
from interplay.engines.scoring import all_scored, scoring_requests
from interplay.engines.wire import ServerFailed, Wire
from interplay.errors import EngineError, EngineLost, did_you_mean
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded
from interplay.models.lora import save_adapter
from interplay.types import Completion, MediaSpan, Stop

SHORT = 30.0  # time limit in seconds of calls that only read information
_ENDING = 2.0  # after a request has failed, seconds in which the process of a dying server ends
_ENDS = {"stop": Stop.END, "length": Stop.LENGTH}


@dataclass
class AdapterVersion:
    """A version of an adapter, with its name on the server. `users` counts the requests that use it."""

    name: str
    version: int
    users: int = 0


@dataclass(frozen=True)
class Timeouts:
    """Time limits in seconds: for a reply, and for an update of the weights. `drain`: before an update, replies that
    are being sampled are finished, each within its own limit."""

    reply: float = 600.0
    update: float = 120.0
    drain: bool = False


class ServerProcess(Protocol):
    """The process of a server that this run started."""

    def ends_within(self, seconds: float) -> bool: ...

    def tail(self) -> str: ...

    def close(self) -> None: ...


class ServedEngine(ABC):
    """An engine that sends requests to the server at `url`. `server` is its process if this run started it.
    `vocabulary` is the number of tokens in the model's vocabulary."""

    kind: ClassVar[str]  # the value of engine.kind
    title: ClassVar[str]
    capabilities: Capabilities

    def __init__(
        self, url: str, vocabulary: int, timeouts: Timeouts, connections: int, server: ServerProcess | None = None
    ) -> None:
        self.version = 0
        self._vocabulary, self._timeouts, self._server = vocabulary, timeouts, server
        self._failure: EngineError | None = None  # the reason why the engine accepts no more requests
        self._adapters: dict[str, AdapterVersion] = {}
        self._retired: list[AdapterVersion] = []
        self._asked: dict[Future[Completion], tuple[object, ...]] = {}
        self._connections = connections
        self._sampled = self._prompts = self._loads = 0
        self._tag = secrets.token_hex(4)  # other runs may have loaded adapters with the same names on this server
        self._folder = tempfile.TemporaryDirectory(prefix="interplay-adapters-")
        self._wire = Wire(url, connections + 8)  # extra connections, so that updates need not wait for replies
        self._gate = asyncio.Semaphore(connections)
        with ExitStack() as failed:
            failed.callback(self.close)
            self._model, self._context, self._paths = self._wire.start(self._look()).result()
            failed.pop_all()

    @property
    def url(self) -> str:
        return self._wire.url

    async def _look(self) -> tuple[str, int, frozenset[str]]:
        """Return the name of the base model, its longest sequence, and the endpoints of this version of the server."""
        models, offered = [await self._wire.get(path, SHORT) for path in ("/v1/models", "/openapi.json")]
        try:
            name, longest, paths = models["data"][0]["id"], int(models["data"][0]["max_model_len"]), offered["paths"]
        except (TypeError, KeyError, IndexError, ValueError):
            raise EngineError(
                f"the server at {self.url} answers /v1/models and /openapi.json, but not as {self.title} does; "
                f"{self._expected()}"
            ) from None
        missing = [path for path in self._needed() if path not in paths]
        if missing:
            raise EngineError(f"the server at {self.url} does not offer {', '.join(missing)}; {self._expected()}")
        return name, longest, frozenset(paths)

    # -- what differs between servers -----------------------------------------------------------------------------

    @abstractmethod
    def _needed(self) -> Sequence[str]:
        """The endpoints without which nothing works."""

    @abstractmethod
    def _expected(self) -> str:
        """What to do if an endpoint is missing, as the end of a sentence."""

    @abstractmethod
    async def _sample(self, request: Request, slot: AdapterVersion | None) -> Completion: ...

    @abstractmethod
    async def _score(self, request: Request, slot: AdapterVersion | None) -> Completion: ...

    @abstractmethod
    async def _update(self, version: int, source: Loaded) -> None:
        """Bring the weights of `source` to the server, under this version. Nothing that was computed with the old ones
        is used for the new ones."""

    @abstractmethod
    async def _resume(self) -> None:
        """Let the server go on after the pause of an update."""

    @abstractmethod
    async def _reset(self) -> None:
        """Clear the caches that were computed with older weights."""

    @abstractmethod
    async def _load_adapter(self, slot: AdapterVersion, folder: Path) -> None: ...

    @abstractmethod
    async def _unload_adapter(self, slot: AdapterVersion) -> None: ...

    # -- replies --------------------------------------------------------------------------------------------------

    async def generate(self, request: Request) -> Completion:
        self._refuse(request)
        if request.forced:
            (logprobs,) = await self.score(request.ids, [request.forced], request.adapter)
            version = self.version if request.adapter is None else self._adapters[request.adapter].version
            return Completion(request.forced, logprobs, (version,) * len(logprobs), Stop.END)
        return await self._ask(self._sample, request)

    async def score(
        self,
        ids: tuple[int, ...],
        replies: Sequence[tuple[int, ...]],
        adapter: str | None = None,
        media: tuple[MediaSpan, ...] = (),
    ) -> list[tuple[float, ...]]:
        requests = scoring_requests(ids, replies, adapter, media)
        for request in requests:  # check all of them before any is sent
            self._refuse(request)
        return await all_scored(self._ask(self._score, request) for request in requests)

    def _refuse(self, request: Request) -> None:
        self._refuse_failed()
        if request.media:
            raise EngineError(
                f"engine.kind is '{self.kind}', which reads only text in Interplay; expected engine.kind = 'local'."
            )
        if request.legal and not self.capabilities.legal:
            raise EngineError(
                f"sampling.legal is true, and engine.kind = '{self.kind}' cannot be limited to legal replies; expected "
                "sampling.legal = false, or engine.kind = 'local' or 'vllm'."
            )
        refuse_impossible(request, self._vocabulary, self._context, self._adapters)
        if request.sampling.cuts:
            raise EngineError(
                f"top_k, top_p or min_p is set; expected none of them with {self.title}, since the learner cannot "
                "rebuild the distribution that they leave."
            )

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))

    async def _ask(self, how: Callable[[Request, AdapterVersion | None], Any], request: Request) -> Completion:
        """Send a request on the wire's event loop, and wait for the reply on the caller's event loop."""
        slot = None if request.adapter is None else self._adapters[request.adapter]
        if slot is not None:
            slot.users += 1
        asked: Future[Completion] = self._wire.start(how(request, slot))
        self._asked[asked] = request.key
        try:
            return await census().elsewhere(asyncio.wrap_future(asked))
        except asyncio.CancelledError:
            self._refuse_failed()
            raise
        finally:
            del self._asked[asked]
            if slot is not None:
                slot.users -= 1

    def _completion(
        self, request: Request, tokens: tuple[int, ...], logprobs: tuple[float, ...], reason: str,
        versions: tuple[int, ...],
    ) -> Completion:  # fmt: skip
        """A checked and counted reply. `reason` says why it ended."""
        if reason not in _ENDS or not tokens or len(tokens) != len(logprobs):
            raise EngineError(
                f"{self} ended a reply with '{reason}' after {len(tokens)} tokens and {len(logprobs)} log-probs; "
                "expected 'stop' or 'length', and a log-prob for each token."
            )
        self._sampled += len(tokens)
        self._prompts += len(request.ids)
        return Completion(tokens, logprobs, versions, _ENDS[reason])

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        """Send a request for a reply."""
        return await self._watched(self._wire.post(path, self._timeouts.reply, body))

    async def _watched(self, call: Awaitable[Any]) -> Any:
        """Return the result of a call. If the call failed because the server has ended, raise an error that says so,
        and accept no more requests."""
        try:
            return await call
        except ServerFailed:
            server = self._server
            if server is None or not await asyncio.to_thread(server.ends_within, _ENDING):
                raise
            self._failure = EngineLost(f"{self} has ended. The end of its log:\n{server.tail()}")
        raise self._failure

    # -- weights --------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        self._call(self._reset())

    def update(self, version: int, source: Loaded | None = None) -> None:
        if source is None:
            raise EngineError(f"{self} has its own weights; call update with the model that has the new ones.")
        try:
            self._call(self._update(version, source))
        except BaseException as error:  # also an interrupt: the server must not stay paused
            lost = self._give_up(
                f"an update of the weights to version {version} failed, so the engine takes no more requests: {error}"
            )
            if isinstance(error, EngineError):
                raise lost from None
            raise

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        self._loads += 1
        slot = AdapterVersion(f"{name}@{version}.{self._tag}.{self._loads}", version)
        folder = Path(self._folder.name) / str(self._loads)
        save_adapter(adapter, folder)
        self._call(self._load_adapter(slot, folder))
        before, self._adapters[name] = self._adapters.get(name), slot
        if before is not None:
            self._retired.append(before)
        self._retire()

    def unload(self, name: str) -> None:
        if name not in self._adapters:
            raise EngineError(f"no adapter '{name}' is loaded; {did_you_mean(name, self._adapters)}")
        self._retired.append(self._adapters.pop(name))
        self._retire()

    def _retire(self) -> None:
        """Unload old versions of adapters that no request uses any more."""
        for slot in [s for s in self._retired if not s.users]:
            self._retired.remove(slot)
            self._call(self._unload_adapter(slot))

    def _call(self, work: Any) -> Any:
        """Run a call on the wire's event loop and wait for its result. Any thread may call this."""
        if self._failure is not None:
            work.close()
        self._refuse_failed()
        try:
            return self._wire.start(self._watched(work)).result()
        except TimeoutError:
            raise EngineError(
                f"{self} did not finish a call within {self._timeouts.update:g} s; raise engine.update_timeout."
            ) from None

    def _give_up(self, why: str) -> EngineLost:
        """Take no more requests. A server of this run is stopped. A server of somebody else is resumed, in case it was
        paused, because others may wait for it."""
        lost = self._failure = EngineLost(f"{self}: {why}")
        for asked in list(self._asked):
            asked.cancel()
        if self._server is not None:
            self._server.close()
        else:
            with suppress(EngineError):
                self._wire.start(self._resume()).result()
        return lost

    # -- the rest of the protocol ---------------------------------------------------------------------------------

    def cancel(self, key: tuple[object, ...]) -> bool:
        found = [asked for asked, its in list(self._asked.items()) if its == key]
        for asked in found:
            asked.cancel()  # closes the connection; the server then ends the request
        return bool(found)

    def stats(self) -> EngineStats:
        running = min(len(self._asked), self._connections)
        return EngineStats(self._sampled, self._prompts, 0, running, len(self._asked) - running)

    def limits(self) -> EngineLimits:
        return EngineLimits(self._context)

    def close(self) -> None:
        if self._server is None and self._failure is None:  # a server that goes on need not keep our adapters
            for name in list(self._adapters):
                with suppress(EngineError):
                    self.unload(name)
        self._failure = self._failure or EngineError("the engine is closed; make a new one.")
        self._wire.close()
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            self._folder.cleanup()

    def __str__(self) -> str:
        return f"{self.title} at {self.url}"


def versions_of(spans: list[dict[str, Any]] | None, count: int, sent: int) -> tuple[int, ...]:
    """Return the version of the weights for each token. If the server reports no versions, use the version at which the
    request was sent: it is the oldest version that a token can have."""
    out = [sent] * count
    for span in spans or ():
        if str(span["version"]).isdecimal():  # before the first update, the server's version is not a number
            out[span["start"] : span["end"]] = [int(span["version"])] * (span["end"] - span["start"])
    return tuple(out)

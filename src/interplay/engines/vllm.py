"""A vLLM server as an `Engine`: token ids in, token ids and log-probs out.

Written for vLLM 0.25.1 and 0.32.0. The engine first asks the server which endpoints it has, because versions differ.
An update of the weights: pause → deliver (`delivery.py`) → set version → reset the caches → resume. If one of these
calls fails, the weights of the server are unknown. The engine then accepts no more requests, and stops the server if
this run started it.

Each version of an adapter is loaded under a new name, so no request and no cached prefix mixes two versions. An old
version is unloaded when no request uses it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from interplay.config import EngineSection
from interplay.engines.census import census
from interplay.engines.delivery import Delivery, FolderDelivery, delivery_of
from interplay.engines.engine import Capabilities, EngineLimits, EngineStats, Request
from interplay.engines.refusals import refuse_impossible
from interplay.engines.scoring import all_scored, scoring_requests
from interplay.engines.vllm_server import VllmServer
from interplay.engines.wire import ServerFailed, Wire
from interplay.errors import EngineError, EngineLost, did_you_mean
from interplay.models.adapter import Adapter
from interplay.models.load import Loaded
from interplay.models.lora import save_adapter
from interplay.types import Completion, MediaSpan, Stop

_SHORT = 30.0  # time limit in seconds of calls that only read information
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


class VllmEngine:
    """An engine that sends requests to a vLLM server. `server` is the server's process if this run started it.
    `vocabulary` is the number of tokens in the model's vocabulary. `delivery` is the way that
    new weights take to the server."""

    capabilities = Capabilities(token_ids=True, logprobs=True, adapters=True, legal=True)

    def __init__(
        self, url: str, vocabulary: int, timeouts: Timeouts, connections: int = 256, server: VllmServer | None = None,
        delivery: Delivery | None = None,
    ) -> None:  # fmt: skip
        self.version = 0
        self._delivery = delivery or FolderDelivery()
        self._vocabulary, self._timeouts, self._server = vocabulary, timeouts, server
        self._failure: EngineError | None = None  # the reason why the engine accepts no more requests
        self._adapters: dict[str, AdapterVersion] = {}
        self._retired: list[AdapterVersion] = []
        self._asked: dict[Future[Completion], tuple[object, ...]] = {}
        self._connections = connections
        self._sampled = self._prompts = self._loads = 0
        self._folder = tempfile.TemporaryDirectory(prefix="interplay-adapters-")
        self._wire = Wire(url, connections + 8)  # extra connections, so that updates need not wait for replies
        self._gate = asyncio.Semaphore(connections)
        # vLLM 0.32 with adapters fails when it computes the log-probs of several prompts in one batch (the output layer
        # of LoRA expects one row for each request), so these requests are sent one after another.
        self._scoring = asyncio.Semaphore(1 if server is None or server.lora else connections)
        with ExitStack() as failed:
            failed.callback(self.close)
            self._model, self._context, self._paths = self._wire.start(self._look()).result()
            failed.pop_all()

    @property
    def url(self) -> str:
        return self._wire.url

    async def _look(self) -> tuple[str, int, frozenset[str]]:
        """Return the name of the base model, its longest sequence, and the endpoints of this version of vLLM."""
        models = (await self._wire.get("/v1/models", _SHORT))["data"]
        paths = frozenset((await self._wire.get("/openapi.json", _SHORT))["paths"])
        needed = ("/inference/v1/generate", "/collective_rpc", "/pause", "/resume", "/reset_prefix_cache")
        missing = [path for path in needed if path not in paths]
        if missing:
            raise EngineError(
                f"the server at {self.url} does not offer {', '.join(missing)}; expected vLLM 0.25 or later, "
                "started with VLLM_SERVER_DEV_MODE=1 and, if this version has it, --enable-scale-out."
            )
        return models[0]["id"], int(models[0]["max_model_len"]), paths

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
            raise EngineError("engine.kind is 'vllm', which reads text alone here; expected engine.kind = 'local'.")
        refuse_impossible(request, self._vocabulary, self._context, self._adapters)
        if request.sampling.cuts:
            raise EngineError(
                "top_k, top_p or min_p is set; expected none of them with vLLM, since the learner cannot rebuild the "
                "distribution that they leave."
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

    async def _sample(self, request: Request, slot: AdapterVersion | None) -> Completion:
        sampling = request.sampling
        settings: dict[str, Any] = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "seed": request.seed,
            "logprobs": 0,
            "stop_token_ids": list(sampling.stop),
            "ignore_eos": True,  # only the request's own stop ids end a reply
            "detokenize": bool(sampling.stop_strings),
        }
        if sampling.stop_strings:
            settings |= {"stop": list(sampling.stop_strings), "include_stop_str_in_output": True}
        if request.legal:
            settings["extra_args"] = {"legal": [list(reply) for reply in request.legal]}
        async with self._gate:
            version = self.version if slot is None else slot.version
            answer = await self._post(request.ids, settings, slot)
        choice = answer["choices"][0]
        tokens, logprobs = tuple(choice["token_ids"]), tuple(c["logprob"] for c in choice["logprobs"]["content"])
        if choice["finish_reason"] not in _ENDS or not tokens or len(tokens) != len(logprobs):
            raise EngineError(
                f"{self} ended a reply with '{choice['finish_reason']}' after {len(tokens)} tokens and "
                f"{len(logprobs)} log-probs; expected 'stop' or 'length', and a log-prob for each token."
            )
        self._sampled += len(tokens)
        self._prompts += len(request.ids)
        spans = None if slot is not None else choice.get("weight_versions")
        return Completion(tokens, logprobs, _versions(spans, len(tokens), version), _ENDS[choice["finish_reason"]])

    async def _score(self, request: Request, slot: AdapterVersion | None) -> Completion:
        first = await self._score_next(request.ids, request.forced[0], slot)
        later = await self._score_rest(request, slot) if len(request.forced) > 1 else ()
        return Completion(request.forced, (first, *later), (self.version,) * len(request.forced), Stop.END)

    async def _score_next(self, ids: tuple[int, ...], token: int, slot: AdapterVersion | None) -> float:
        """The log-prob of one token, as sampling computes it: vLLM reads the prefix cache for this request, but not for
        log-probs of prompts. So the probe also finds a cache that was computed with older weights."""
        other = 0 if token else 1  # vLLM lists the sampled token and one of these two, in this order
        settings = {"max_tokens": 1, "temperature": 1.0, "logprobs": 2, "logprob_token_ids": [token, other]}
        async with self._gate:
            answer = await self._post(ids, {**settings, "detokenize": False}, slot)
        listed = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return next(float(entry["logprob"]) for entry in listed if _listed_id(entry) == token)

    async def _score_rest(self, request: Request, slot: AdapterVersion | None) -> tuple[float, ...]:
        settings = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0, "detokenize": False}
        async with self._scoring, self._gate:
            answer = await self._post(request.ids + request.forced, settings, slot)
        rows = answer["prompt_logprobs"][len(request.ids) :]
        return tuple([row[str(t)]["logprob"] for t, row in zip(request.forced, rows, strict=True)][1:])

    async def _post(self, ids: tuple[int, ...], settings: dict[str, Any], slot: AdapterVersion | None) -> Any:
        model = self._model if slot is None else slot.name
        body = {"model": model, "token_ids": list(ids), "sampling_params": settings}
        return await self._watched(self._wire.post("/inference/v1/generate", self._timeouts.reply, body))

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
            raise EngineError(f"{self} has weights of its own; expected the model with the new ones.")
        try:
            self._call(self._update(version, source))
        except EngineError as error:
            self._give_up(f"an update of the weights to version {version} failed, and the engine was given up: {error}")

    async def _update(self, version: int, source: Loaded) -> None:
        limit = self._timeouts.update
        wait = self._timeouts.reply if self._timeouts.drain else 0.0
        async with asyncio.timeout(limit + wait), self._delivery.prepared(source) as ready:
            await self._wire.post("/pause", limit + wait, mode="wait" if wait else "keep")
            await self._delivery.send(self._rpc, ready)
            await self._rpc("interplay_repack")
            if "/update_weight_version" in self._paths:
                await self._wire.post("/update_weight_version", limit, {"new_version": str(version)})
            await self._reset()
            self.version = version
            await self._wire.post("/resume", limit)

    async def _rpc(self, method: str, **arguments: str) -> None:
        limit = self._timeouts.update
        await self._wire.post("/collective_rpc", limit, {"method": method, "kwargs": arguments, "timeout": limit})

    async def _reset(self) -> None:
        """Clear the caches that were computed with older weights, also those of replies that are still sampled."""
        await self._wire.post("/reset_prefix_cache", self._timeouts.update, reset_running_requests="true")

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        self._loads += 1
        slot = AdapterVersion(f"{name}@{version}.{self._loads}", version)
        folder = Path(self._folder.name) / str(self._loads)
        save_adapter(adapter, folder)
        body = {"lora_name": slot.name, "lora_path": str(folder)}
        self._call(self._wire.post("/v1/load_lora_adapter", self._timeouts.update, body))
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
            body = {"lora_name": slot.name}
            self._call(self._wire.post("/v1/unload_lora_adapter", self._timeouts.update, body))

    def _call(self, work: Any) -> Any:
        """Run a call on the wire's event loop and wait for its result. Any thread may call this."""
        if self._failure is not None:
            work.close()
        self._refuse_failed()
        try:
            return self._wire.start(self._watched(work)).result()
        except TimeoutError:
            raise EngineError(f"{self} did not finish a call within {self._timeouts.update:g} s.") from None

    def _give_up(self, why: str) -> None:
        self._failure = EngineLost(f"{self}: {why}")
        if self._server is not None:
            self._server.close()
        for asked in list(self._asked):
            asked.cancel()
        raise self._failure

    # -- the rest of the protocol ---------------------------------------------------------------------------------

    def cancel(self, key: tuple[object, ...]) -> bool:
        found = [asked for asked, its in list(self._asked.items()) if its == key]
        for asked in found:
            asked.cancel()  # closes the connection; vLLM then ends the request
        return bool(found)

    def stats(self) -> EngineStats:
        running = min(len(self._asked), self._connections)
        return EngineStats(self._sampled, self._prompts, 0, running, len(self._asked) - running)

    def limits(self) -> EngineLimits:
        return EngineLimits(self._context)

    def close(self) -> None:
        self._failure = self._failure or EngineError("the engine is closed; make a new one.")
        self._wire.close()
        if self._server is not None:
            self._server.close()
        with suppress(OSError):
            self._folder.cleanup()

    def __str__(self) -> str:
        return f"vLLM at {self.url}"


def open_engine(model: PreTrainedModel, section: EngineSection, ranks: Sequence[int], cpu: bool) -> VllmEngine:
    """Return an engine that uses the server in the recipe, or else start a server for this model."""
    server = None
    if section.url is None:
        dtype = str(model.dtype).removeprefix("torch.")
        server = VllmServer(section, model.config.name_or_path, dtype, ranks, cpu)
    url = section.url or (server.url if server is not None else "")
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    timeouts = Timeouts(section.timeout, section.update_timeout, not section.in_flight)
    delivery = delivery_of(section.transfer, url, section.tensor_parallel, section.update_timeout)
    return VllmEngine(url, vocabulary, timeouts, section.concurrency, server, delivery)


def _listed_id(entry: dict[str, Any]) -> int:
    """The token of an entry in a list of log-probs: 0.25 names it in a text, such as `token_id:7`."""
    return int(entry["token_id"] if "token_id" in entry else entry["token"].removeprefix("token_id:"))


def _versions(spans: list[dict[str, Any]] | None, count: int, sent: int) -> tuple[int, ...]:
    """Return the version of the weights for each token. If the server reports no versions, use the version at which the
    request was sent: it is the oldest version that a token can have."""
    out = [sent] * count
    for span in spans or ():
        if str(span["version"]).isdecimal():  # before the first update, the server's version is not a number
            out[span["start"] : span["end"]] = [int(span["version"])] * (span["end"] - span["start"])
    return tuple(out)

"""A vLLM server as an `Engine`: token ids in, token ids and log-probs out.

Written for vLLM 0.25.1 and 0.32.0. The engine first asks the server which endpoints it has, because versions differ.
An update of the weights: pause → deliver (`delivery.py`) → set version → reset the caches → resume.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from interplay.config import EngineSection
from interplay.engines.delivery import Delivery, FolderDelivery, delivery_of
from interplay.engines.engine import Capabilities, Request
from interplay.engines.served import AdapterVersion, ServedEngine, Timeouts, versions_of
from interplay.engines.vllm_server import VllmServer
from interplay.models.load import Loaded
from interplay.types import Completion, Stop


class VllmEngine(ServedEngine):
    """`delivery` brings new weights to the server."""

    kind, title = "vllm", "vLLM"
    capabilities = Capabilities(token_ids=True, logprobs=True, adapters=True, legal=True)

    def __init__(
        self, url: str, vocabulary: int, timeouts: Timeouts, connections: int = 256, server: VllmServer | None = None,
        delivery: Delivery | None = None,
    ) -> None:  # fmt: skip
        self._delivery = delivery or FolderDelivery()
        super().__init__(url, vocabulary, timeouts, connections, server)

    def _needed(self) -> Sequence[str]:
        return ("/inference/v1/generate", "/collective_rpc", "/pause", "/resume", "/reset_prefix_cache")

    def _expected(self) -> str:
        return (
            "expected vLLM 0.25 or later, started with VLLM_SERVER_DEV_MODE=1 and, if this version has it, "
            "--enable-scale-out."
        )

    # -- replies --------------------------------------------------------------------------------------------------

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
            answer = await self._generate(request.ids, settings, slot)
        choice = answer["choices"][0]
        tokens, logprobs = tuple(choice["token_ids"]), tuple(c["logprob"] for c in choice["logprobs"]["content"])
        spans = None if slot is not None else choice.get("weight_versions")
        versions = versions_of(spans, len(tokens), version)
        return self._completion(request, tokens, logprobs, choice["finish_reason"], versions)

    async def _score(self, request: Request, slot: AdapterVersion | None) -> Completion:
        """Score each token with a request of its own, in the way in which it would be sampled. vLLM can return the
        log-probs of a prompt, but it computes them without the prefix cache, so they would not show that the cache was
        computed with older weights. Also, vLLM 0.32 with adapters crashes when they are requested in a batch with other
        requests (its output layer expects one row for each request)."""
        ids, reply = request.ids, request.forced
        logprobs = await asyncio.gather(*(self._score_next(ids + reply[:i], t, slot) for i, t in enumerate(reply)))
        return Completion(reply, tuple(logprobs), (self.version,) * len(reply), Stop.END)

    async def _score_next(self, ids: tuple[int, ...], token: int, slot: AdapterVersion | None) -> float:
        other = 0 if token else 1  # vLLM lists the sampled token and one of these two, in this order
        settings = {"max_tokens": 1, "temperature": 1.0, "logprobs": 2, "logprob_token_ids": [token, other]}
        async with self._gate:
            answer = await self._generate(ids, {**settings, "detokenize": False}, slot)
        listed = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return next(float(entry["logprob"]) for entry in listed if _listed_id(entry) == token)

    async def _generate(self, ids: tuple[int, ...], settings: dict[str, Any], slot: AdapterVersion | None) -> Any:
        model = self._model if slot is None else slot.name
        body = {"model": model, "token_ids": list(ids), "sampling_params": settings}
        return await self._post("/inference/v1/generate", body)

    # -- weights --------------------------------------------------------------------------------------------------

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
            await self._resume()

    async def _resume(self) -> None:
        await self._wire.post("/resume", self._timeouts.update)

    async def _rpc(self, method: str, **arguments: str) -> None:
        limit = self._timeouts.update
        await self._wire.post("/collective_rpc", limit, {"method": method, "kwargs": arguments, "timeout": limit})

    async def _reset(self) -> None:
        """Clear the caches, also those of replies that are still sampled."""
        await self._wire.post("/reset_prefix_cache", self._timeouts.update, reset_running_requests="true")

    async def _load_adapter(self, slot: AdapterVersion, folder: Path) -> None:
        body = {"lora_name": slot.name, "lora_path": str(folder)}
        await self._wire.post("/v1/load_lora_adapter", self._timeouts.update, body)

    async def _unload_adapter(self, slot: AdapterVersion) -> None:
        await self._wire.post("/v1/unload_lora_adapter", self._timeouts.update, {"lora_name": slot.name})


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
    """The token of an entry in a list of log-probs. vLLM 0.25 gives it as a text, such as `token_id:7`."""
    return int(entry["token_id"] if "token_id" in entry else entry["token"].removeprefix("token_id:"))

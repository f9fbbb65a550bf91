"""An SGLang server as an `Engine`: token ids in, token ids and log-probs out.

It was written from the source code of SGLang 0.5.23 and is checked against SGLang's own request classes (`make
test-sglang`). It has not been run against a live server. The server is started by the user. An update of the weights:
write a folder → pause, with replies in progress put back into the queue → load the folder, set the version and flush
the cache → continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from interplay.config import EngineSection
from interplay.engines.delivery import FolderDelivery
from interplay.engines.engine import Capabilities, Request
from interplay.engines.served import AdapterVersion, ServedEngine, Timeouts, versions_of
from interplay.errors import EngineError
from interplay.models.load import Loaded
from interplay.types import Completion, Stop


class SglangEngine(ServedEngine):
    """Replies cannot be limited to legal ones: SGLang takes a logits processor only as pickled code."""

    kind, title = "sglang", "SGLang"
    capabilities = Capabilities(token_ids=True, logprobs=True, adapters=True)

    def _needed(self) -> Sequence[str]:
        updates = ("/pause_generation", "/continue_generation", "/update_weights_from_disk", "/flush_cache")
        return ("/generate", *updates)

    def _expected(self) -> str:
        return "expected SGLang 0.5.23 or later."

    # -- replies --------------------------------------------------------------------------------------------------

    async def _sample(self, request: Request, slot: AdapterVersion | None) -> Completion:
        sampling = request.sampling
        settings: dict[str, Any] = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "sampling_seed": request.seed,
            "stop_token_ids": list(sampling.stop),
            "ignore_eos": True,  # only the request's own stop ids end a reply
            "skip_special_tokens": False,
            "no_stop_trim": True,  # what ended the reply is part of it
        }
        if sampling.stop_strings:
            settings["stop"] = list(sampling.stop_strings)
        async with self._gate:
            version = self.version if slot is None else slot.version
            answer = await self._generate(request.ids, settings, slot, -1)
        told = answer["meta_info"]
        tokens = tuple(answer["output_ids"])
        logprobs = tuple(float(entry[0]) for entry in told["output_token_logprobs"])
        spans = None if slot is not None else told.get("weight_versions")
        versions = versions_of(spans, len(tokens), version)
        return self._completion(request, tokens, logprobs, told["finish_reason"]["type"], versions)

    async def _score(self, request: Request, slot: AdapterVersion | None) -> Completion:
        """SGLang reads its cache for the tokens before `logprob_start_len`, the last one of the prompt. So the probe
        also finds a cache that was computed with older weights."""
        settings = {"max_new_tokens": 1, "temperature": 1.0}
        async with self._gate:
            start = len(request.ids) - 1
            answer = await self._generate(request.ids + request.forced, settings, slot, start)
        entries = answer["meta_info"]["input_token_logprobs"][-len(request.forced) :]
        if tuple(entry[1] for entry in entries) != request.forced:
            raise EngineError(f"{self} scored other tokens than those it was asked for; expected the reply's own.")
        logprobs = tuple(float(entry[0]) for entry in entries)
        return Completion(request.forced, logprobs, (self.version,) * len(logprobs), Stop.END)

    async def _generate(
        self, ids: tuple[int, ...], settings: dict[str, Any], slot: AdapterVersion | None, start: int
    ) -> Any:
        """`start` is the position from which the log-probs of the prompt are returned; -1 returns none of them."""
        body = {"input_ids": list(ids), "sampling_params": settings, "return_logprob": True, "logprob_start_len": start}
        if slot is not None:
            body["lora_path"] = slot.name
        return await self._post("/generate", body)

    # -- weights --------------------------------------------------------------------------------------------------

    async def _update(self, version: int, source: Loaded) -> None:
        """A server that is not paused finishes the replies in progress before it loads weights (`drain`)."""
        limit, drain = self._timeouts.update, self._timeouts.drain
        wait = self._timeouts.reply if drain else 0.0
        async with asyncio.timeout(limit + wait), FolderDelivery().prepared(source) as folder:
            if not drain:
                await self._wire.post("/pause_generation", limit, {"mode": "retract"})
            body = {"model_path": str(folder), "weight_version": str(version), "flush_cache": True}
            await self._wire.post("/update_weights_from_disk", limit + wait, body)
            self.version = version
            await self._resume()

    async def _resume(self) -> None:
        if not self._timeouts.drain:
            await self._wire.post("/continue_generation", self._timeouts.update, {})

    async def _reset(self) -> None:
        await self._wire.post("/flush_cache", self._timeouts.update)

    async def _load_adapter(self, slot: AdapterVersion, folder: Path) -> None:
        body = {"lora_name": slot.name, "lora_path": str(folder)}
        await self._wire.post("/load_lora_adapter", self._timeouts.update, body)

    async def _unload_adapter(self, slot: AdapterVersion) -> None:
        await self._wire.post("/unload_lora_adapter", self._timeouts.update, {"lora_name": slot.name})


def connect(model: PreTrainedModel, section: EngineSection) -> SglangEngine:
    """Return an engine that uses the server in the recipe."""
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    timeouts = Timeouts(section.timeout, section.update_timeout, not section.in_flight)
    return SglangEngine(section.url or "", vocabulary, timeouts, section.concurrency)

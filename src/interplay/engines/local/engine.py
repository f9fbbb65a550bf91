"""The in-process engine behind the `Engine` protocol.

It shares its parameters with the learner, so publishing new weights is a version number and a cache flush.
A step runs on one worker thread, so that the event loop stays free; steps are taken in rounds (`rounds.py`), so that
a batch holds every request that is ready, whatever the timing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from transformers import PreTrainedModel

from interplay.engines.engine import Capabilities, Request
from interplay.engines.local.cache import BlockCache
from interplay.engines.local.runner import ModelRunner
from interplay.engines.local.sampler import sample, uniforms
from interplay.engines.local.scheduler import Scheduler, Sequence
from interplay.engines.rounds import rounds
from interplay.errors import EngineError
from interplay.types import Completion, Stop


class LocalEngine:
    capabilities = Capabilities(token_ids=True, logprobs=True)

    def __init__(
        self, model: PreTrainedModel, cache_tokens: int = 131_072, block_size: int = 16, prefill_tokens: int = 16_384
    ) -> None:
        self.version = 0
        self.generated_tokens = 0
        self.max_context = int(model.config.get_text_config().max_position_embeddings)
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self._prefill_tokens = prefill_tokens
        blocks = cache_tokens // block_size + 1
        self.scheduler = Scheduler(BlockCache(blocks, block_size))
        self.runner = ModelRunner(model, blocks, block_size)
        self._arrived: list[tuple[Request, asyncio.Future[Completion]]] = []
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="interplay-engine")

    async def generate(self, request: Request) -> Completion:
        self._refuse_impossible(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Completion] = loop.create_future()
        self._arrived.append((request, future))
        rounds().serve(self)
        return await future

    def publish(self, version: int) -> None:
        self.thread.submit(int).result()  # a step that only cancelled requests still ride on ends first
        self.take()
        self._drop_cancelled()
        if self.busy:
            raise EngineError("publish was called while requests are in flight; wait for them or cancel them first.")
        self.version = version
        self.scheduler.flush()

    def close(self) -> None:
        self.thread.shutdown(wait=True, cancel_futures=True)

    def _refuse_impossible(self, request: Request) -> None:
        total = len(request.ids) + request.sampling.max_tokens
        cache = self.scheduler.cache
        if not request.ids:
            raise EngineError("the prompt has no tokens; expected at least one.")
        if request.sampling.max_tokens < 1:
            raise EngineError(f"max_tokens is {request.sampling.max_tokens}; expected at least 1.")
        if min(request.ids) < 0 or max(request.ids) >= self._vocabulary:
            raise EngineError(f"the prompt holds a token id outside the model's vocabulary of {self._vocabulary}.")
        if total > self.max_context:
            raise EngineError(
                f"prompt ({len(request.ids)}) plus max_tokens ({request.sampling.max_tokens}) is {total} tokens; "
                f"the model takes at most {self.max_context}: shorten the prompt or lower sampling.max_tokens."
            )
        shared = len(request.ids) // cache.block_size  # the prompt's full blocks serve the reply too
        if cache.blocks_for(total) + cache.blocks_for(len(request.ids)) - shared > cache.total:
            raise EngineError(
                f"a request of {total} tokens can never fit the engine's cache of {cache.total * cache.block_size} "
                "tokens: raise its cache size or lower sampling.max_tokens."
            )

    @property
    def queued(self) -> int:
        return len(self._arrived) + self.scheduler.queued

    @property
    def busy(self) -> bool:
        return bool(self.queued or self.scheduler.running)

    def take(self) -> None:
        for request, future in self._arrived:
            self.scheduler.add(request, future)
        self._arrived.clear()

    def fail(self, error: Exception) -> None:
        """The boundary: whatever broke becomes a typed error of every waiting request."""
        self._fail_all(EngineError(f"the local engine failed: {type(error).__name__}: {error}"))

    def _fail_all(self, error: EngineError) -> None:
        scheduler = self.scheduler
        self.take()
        scheduler.collect()
        futures = [s.future for s in scheduler.running] + [f for _, f in scheduler.waiting]
        for sequence in scheduler.running:
            scheduler.finish(sequence)
        scheduler.running, scheduler.waiting = [], []
        scheduler.flush()
        for future in futures:
            if not future.done():
                future.set_exception(error)

    def _drop_cancelled(self) -> None:
        """Give back what requests hold that nobody waits for any more."""
        scheduler = self.scheduler
        scheduler.collect()
        for sequence in [s for s in scheduler.running if s.future.done()]:
            scheduler.running.remove(sequence)
            scheduler.finish(sequence)
        scheduler.waiting = [w for w in scheduler.waiting if not w[1].done()]

    def step(self) -> list[Callable[[], None]]:
        """Admit, run, sample once. Returns what to do on the event loop: deliver the finished completions."""
        scheduler = self.scheduler
        self._drop_cancelled()
        ongoing = list(scheduler.running)
        admission = scheduler.admit()
        if admission.prefill:
            self.runner.prefill(admission.prefill, self._prefill_tokens)
            for prompt in admission.prefill:
                scheduler.cache.remember(prompt.ids, prompt.blocks)
        if admission.copies:
            self.runner.copy_blocks(admission.copies)
        if not scheduler.running:
            return []
        hidden = [s.prompt.hidden for s in admission.started]
        rows = [self.runner.decode(ongoing)] if ongoing else []
        rows += [torch.stack([h for h in hidden if h is not None])] if hidden else []
        return self._sample(ongoing + admission.started, torch.cat(rows))

    @torch.inference_mode()
    def _sample(self, sequences: list[Sequence], hidden_NC: torch.Tensor) -> list[Callable[[], None]]:
        seeds = np.array([s.request.seed for s in sequences], np.uint64)
        positions = np.array([len(s.tokens) for s in sequences], np.uint64)
        device = hidden_NC.device
        temperature = torch.tensor([s.request.sampling.temperature for s in sequences], device=device)
        draw = torch.from_numpy(uniforms(seeds, positions)).to(device)
        tokens, logprobs = sample(self.runner.logits(hidden_NC), temperature, draw)
        self.generated_tokens += len(sequences)
        finished: list[Callable[[], None]] = []
        still: list[Sequence] = []
        for sequence, token, logprob in zip(sequences, tokens.tolist(), logprobs.tolist(), strict=True):
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
            sampling = sequence.request.sampling
            stop = Stop.END if token in sampling.stop else None
            if stop is None and len(sequence.tokens) >= sampling.max_tokens:
                stop = Stop.LENGTH
            if stop is None:
                still.append(sequence)
            else:
                self.scheduler.finish(sequence)
                finished.append(self._delivery(sequence, stop))
        self.scheduler.running = still
        return finished

    def _delivery(self, sequence: Sequence, stop: Stop) -> Callable[[], None]:
        completion = Completion(tuple(sequence.tokens), tuple(sequence.logprobs), self.version, stop)

        def deliver() -> None:
            if not sequence.future.done():
                sequence.future.set_result(completion)

        return deliver

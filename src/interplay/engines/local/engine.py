"""The in-process engine: an implementation of the `Engine` protocol.

It shares its parameters with the learner, so an update of the weights only sets a version number and flushes the cache.
Steps run on a worker thread, so that the event loop stays free. A step begins when nobody can send another request
before the next answer (`census.py`), so that a batch holds every request that is ready.

A GPU computes while the host works. A step starts the GPU's next tokens and returns. While the GPU samples them, the
answers of the step are delivered and new requests arrive. The next step admits them, starts to compute their prompts,
and only then waits for the tokens. Whoever changes the weights or the cache waits for them first (`_settled`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from interplay.engines.census import census, deliver, forget
from interplay.engines.codec import TokenCodec
from interplay.engines.engine import (
    CPU_CACHE_TOKENS,
    MAX_RUNNING,
    Capabilities,
    EngineLimits,
    EngineStats,
    Request,
)
from interplay.engines.local.absorb import Ended, VersionOf, absorb
from interplay.engines.local.cache import BlockCache
from interplay.engines.local.cpu import CpuRunner
from interplay.engines.local.room import CacheRoom, gpu_cache_tokens
from interplay.engines.local.runner import NO_DRAFTS, Drawn, Later, ModelRunner
from interplay.engines.local.scheduler import Scheduler, Sequence
from interplay.engines.local.speculation import COST, LOOKUP_COST, Speculation
from interplay.engines.refusals import refuse_impossible
from interplay.engines.scoring import all_scored, scoring_requests
from interplay.errors import EngineError, RequestError, did_you_mean
from interplay.models import channels, senses
from interplay.models.adapter import Adapter
from interplay.models.latch import latch_of
from interplay.models.lay import is_soft
from interplay.models.load import Loaded
from interplay.types import Completion, MediaSpan, Stop


class LocalEngine:
    """`cache_tokens` is the size of the cache (default: 131,072 on a CPU; on a GPU what `room` says);
    `prefill_tokens` is the largest number of prompt tokens in one step; `chunk` is how many tokens a GPU decodes before
    the host reads them. Stop strings need the tokenizer. When the weights change, running requests continue with the
    cache of the older weights if `keep_cache` is set; otherwise their cache is computed again. With `beside`, the
    engine has a GPU stream of its own, parallel to the learner's; decoding is then about 4% slower (H200, 0.5B, 256
    requests). `speculation` samples several tokens of a request in one step where their drafts are right; without it,
    a step samples one token."""

    def __init__(
        self,
        model: PreTrainedModel,
        cache_tokens: int | None = None,
        block_size: int = 16,
        prefill_tokens: int = 16_384,
        max_running: int = MAX_RUNNING,
        chunk: int = 16,
        tokenizer: PreTrainedTokenizerBase | None = None,
        keep_cache: bool = False,
        beside: bool = False,
        speculation: Speculation | None = None,
        room: CacheRoom | None = None,
    ) -> None:
        self.version = 0
        sense = senses.of(model)
        kinds: frozenset[str] = frozenset() if sense is None else sense.kinds
        self.capabilities = Capabilities(
            token_ids=True, logprobs=True, adapters=True, legal=True, shared=True, media=kinds
        )
        self.keep_cache, self.speculation = keep_cache, speculation
        self._sampled = 0
        self._seconds = 0.0  # the time that all steps took, and what a GPU sampled between them
        self._stepped = self._apart = 0.0  # when the last step ended, and how much later the next one began
        self._slots: dict[str, _Slot] = {}  # the newest version of each adapter, by name
        self._retired: list[_Slot] = []  # older versions that requests may still use
        self._salts = 0
        self.latch = latch_of(model)
        self._codec = None if tokenizer is None else TokenCodec(tokenizer)
        self.max_context = int(model.config.get_text_config().max_position_embeddings)
        self._vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self._prefill_tokens = prefill_tokens
        self.runner: ModelRunner
        if next(model.parameters()).device.type == "cuda":
            from interplay.engines.local.cuda import CudaRunner  # needs Triton
            from interplay.models.kernels import PAGE

            block_size = PAGE
            blocks = (cache_tokens or gpu_cache_tokens(model, room or CacheRoom())) // block_size + 1
            self.runner = CudaRunner(model, blocks, max_running, self.max_context, chunk)
        else:
            blocks = (cache_tokens or CPU_CACHE_TOKENS) // block_size + 1
            self.runner = CpuRunner(model, blocks, block_size, prefill_tokens)
        self._cuda = torch.cuda.Stream(model.device) if beside and model.device.type == "cuda" else None
        self.scheduler = Scheduler(BlockCache(blocks, block_size), max_running)
        self._arrived: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._computing: tuple[Later, VersionOf] | None = None  # what the GPU samples, and with which weights
        self._answers: list[Callable[[], None]] = []  # found between two steps; the next one returns them
        self._closed = False
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="interplay-engine")

    async def generate(self, request: Request) -> Completion:
        self._refuse_impossible(request)
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        if request.adapter is None:
            self._arrived.append((request, future))
            return await census().answer(self, future)
        slot = self._slots[request.adapter]
        slot.users += 1
        try:
            named = request if slot.key == request.adapter else replace(request, adapter=slot.key)
            self._arrived.append((named, future))
            return await census().answer(self, future)
        finally:
            slot.users -= 1

    async def score(
        self,
        ids: tuple[int, ...],
        replies: Seq[tuple[int, ...]],
        adapter: str | None = None,
        media: tuple[MediaSpan, ...] = (),
    ) -> list[tuple[float, ...]]:
        requests = scoring_requests(ids, replies, adapter, media)
        for request in requests:  # check all of them before any is sent
            self._refuse_impossible(request)
        return await all_scored(map(self.generate, requests))

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """While this context is open, no step runs and the GPU samples nothing. What it sampled is not lost."""
        with self.latch.writing():
            self._apart = time.perf_counter() - self._stepped
            self._end(self._computed())
            yield

    def flush(self) -> None:
        with self._settled():
            self.scheduler.flush()
            wires = channels.of(self.runner.model)
            if wires is not None:
                wires.forget()

    def update(self, version: int, source: Loaded | None = None) -> None:
        if source is not None:
            raise EngineError("the local engine shares its weights with the learner; call update without a source.")
        with self._settled():
            self.version = version
            self._drop_cancelled()
            if not self.keep_cache:
                self.scheduler.restart()
            self.scheduler.flush()

    def cancel(self, key: tuple[object, ...]) -> bool:
        found = [f for r, f in [*self._arrived, *self.scheduler.requests()] if r.key == key and not f.done()]
        for future in found:
            future.cancel()
        return bool(found)

    def stats(self) -> EngineStats:
        scheduler = self.scheduler
        waiting = len(self._arrived) + scheduler.queued
        counted = scheduler.prompt_tokens, scheduler.saved_tokens, len(scheduler.running)
        drafts = (0, 0) if self.speculation is None else (self.speculation.drafted, self.speculation.accepted)
        return EngineStats(self._sampled, *counted, waiting, self._seconds, *drafts)

    def limits(self) -> EngineLimits:
        cache = self.scheduler.cache
        return EngineLimits(self.max_context, cache.total * cache.block_size)

    def load(self, name: str, adapter: Adapter, version: int) -> None:
        with self._settled():
            self._retire()
            before = self._slots.get(name)
            slot = before
            if before is None or before.users:  # running requests finish with the weights they began with
                taken = {s.key for s in (*self._slots.values(), *self._retired)}
                slot = _Slot(name if name not in taken else f"{name}#{self._salts + 1}")
            assert slot is not None
            self.runner.load(slot.key, adapter)  # if this raises, nothing has changed
            if before is not None and before is not slot:
                self._retired.append(before)
            self._slots[name] = slot
            slot.version = version
            self._salts += 1
            self.scheduler.salts[slot.key] = self._salts  # a new salt: cached results of earlier weights are not reused

    def unload(self, name: str) -> None:
        if name not in self._slots:
            raise EngineError(f"no adapter '{name}' is loaded; {did_you_mean(name, self._slots)}")
        with self._settled():
            self._retired.append(self._slots.pop(name))
            self._retire()

    def _retire(self) -> None:
        """Free the memory of retired adapters that no request uses any more."""
        self._drop_cancelled()
        for slot in [s for s in self._retired if not s.users]:
            self._retired.remove(slot)
            self.runner.unload(slot.key)
            del self.scheduler.salts[slot.key]

    def close(self) -> None:
        self._closed = True
        self.thread.shutdown(wait=True, cancel_futures=True)
        try:
            self._end(self._computed())  # the GPU uses the engine's memory until then
            if self._cuda is not None:
                self._cuda.synchronize()  # it may still compute prompts, into memory of the learner's stream
        finally:
            self._fail_all(EngineError("the engine was closed while this request was in flight."))
            forget(self)

    def _refuse_impossible(self, request: Request) -> None:
        cache, total = self.scheduler.cache, len(request.ids) + request.room
        if self._closed:
            raise EngineError("the engine is closed; make a new one.")
        if any(not is_soft(span) for span in request.media) and not self.capabilities.media:
            raise EngineError(
                "the model of this engine reads only text; expected a prompt without pictures and sounds, or a model "
                "that takes them."
            )
        refuse_impossible(request, self._vocabulary, self.max_context, self._slots)
        if request.sampling.stop_strings and self._codec is None:
            raise RequestError("stop strings need a tokenizer; make the engine with one, or use stop ids.")
        shared = len(request.ids) // cache.block_size  # the reply's sequence shares the prompt's full blocks
        if cache.blocks_for(total) + cache.blocks_for(len(request.ids)) - shared > cache.total:
            raise RequestError(
                f"a request of {total} tokens can never fit into the engine's cache of "
                f"{cache.total * cache.block_size} tokens; use a larger cache, or lower sampling.max_tokens."
            )

    @property
    def queued(self) -> int:
        return len(self._arrived) + self.scheduler.queued

    @property
    def busy(self) -> bool:
        # In the order in which another thread moves requests: from running to waiting, or to their answers.
        return not self._closed and bool(self.scheduler.running or self.queued or self._answers)

    def take(self) -> None:
        for request, future in self._arrived:
            self.scheduler.add(request, future)
        self._arrived.clear()

    def fail(self, error: Exception) -> None:
        """Turn any exception of a step into an `EngineError` of every waiting request."""
        self._fail_all(EngineError(f"the local engine failed: {type(error).__name__}: {error}"))

    def _fail_all(self, error: EngineError) -> None:
        with self.latch.writing():  # the learner's thread may be setting a version
            computing, self._computing = self._computing, None
            if computing is not None:
                with suppress(Exception):  # it may be what failed
                    computing[0]()  # the GPU uses the engine's memory until then
            answers = self._answered()
            self.take()
            waiting = self.scheduler.end_all()
        for answer in answers:
            answer()
        for _, future in waiting:
            deliver(future, error)

    def _drop_cancelled(self) -> None:
        """Free the blocks of requests that nobody waits for any more. If the GPU still writes into them, it does so
        before it writes what the host starts later."""
        scheduler = self.scheduler
        scheduler.collect()
        for sequence in [s for s in scheduler.running if s.future.done()]:
            scheduler.running.remove(sequence)
            scheduler.finish(sequence)
        scheduler.waiting = [w for w in scheduler.waiting if not w.future.done()]

    def step(self) -> list[Callable[[], None]]:
        """Admit requests, compute their prompts, read what was sampled, and sample more. The returned functions deliver
        finished completions; they are called on the event loop."""
        with self._stream(), self.latch.reading():
            began = time.perf_counter()
            self._apart = began - self._stepped
            try:
                return self._step()
            finally:
                self._stepped = time.perf_counter()
                self._seconds += self._stepped - began

    def _stream(self) -> AbstractContextManager[object]:
        """A context in which the engine's own GPU stream is current, if it has one."""
        return nullcontext() if self._cuda is None else torch.cuda.stream(self._cuda)

    def _step(self) -> list[Callable[[], None]]:
        scheduler = self.scheduler
        self._drop_cancelled()
        ready = [s for s in scheduler.running if s.ready]
        scheduler.admit(self._prefill_tokens)
        pieces = scheduler.pieces(self._prefill_tokens)
        scored = scheduler.scored(pieces)
        found = self.runner.prefill(pieces, scored) if pieces or scored else []
        fresh = [s for s in scheduler.computed(pieces) if not s.request.forced]
        copies = [s.copy for s in fresh if s.copy is not None]
        if copies:
            self.runner.copy_blocks(copies)
        ended: Ended = []
        versions = self._versions()
        for sequence, logprobs in zip(scored, found, strict=True):
            sequence.turn_to(versions[sequence.request.adapter])
            sequence.tokens, sequence.logprobs = list(sequence.request.forced), logprobs
            ended.append((sequence, Stop.END))
        ended += self._computed()
        over = {sequence for sequence, _ in ended}
        ongoing = [s for s in ready if s not in over]
        if ongoing or fresh:
            drawn = self._advance(ongoing, fresh)
            if callable(drawn):
                self._computing = drawn, versions
            else:
                ended += self._absorb(drawn, versions)
        self._end(ended)
        return self._answered()

    def _computed(self) -> Ended:
        """Wait for the tokens that the GPU samples, if any. Returns the sequences that ended."""
        if self._computing is None:
            return []
        (wait, versions), self._computing = self._computing, None
        running, drawn = set(self.scheduler.running), wait()  # those not running were cancelled
        self._seconds += min(self._apart, self.runner.seconds)
        return self._absorb([d for d in drawn if d[0] in running], versions)

    def _absorb(self, drawn: Seq[Drawn], versions: VersionOf) -> Ended:
        """Add new tokens to their sequences. Returns those that ended."""
        self._sampled += sum(len(tokens) for _, tokens, _ in drawn)
        return absorb(drawn, versions, self._codec)

    def _end(self, ended: Ended) -> None:
        self._answers += [self._delivery(*end) for end in ended]  # before they stop to run: the engine stays busy
        over = {sequence for sequence, _ in ended}
        self.scheduler.running = [s for s in self.scheduler.running if s not in over]

    def _answered(self) -> list[Callable[[], None]]:
        answers, self._answers = self._answers, []
        return answers

    def _advance(self, ongoing: Seq[Sequence], fresh: Seq[Sequence]) -> list[Drawn] | Later:
        """Sample, with drafts if this engine has any."""
        speculation, runner, hurry = self.speculation, self.runner, self.scheduler.computing
        if speculation is None:
            return runner.advance(ongoing, fresh, hurry)
        rows, drafts, cost = runner.most_rows, NO_DRAFTS, COST
        if runner.looks_up([*ongoing, *fresh]):
            cost = LOOKUP_COST
            if not fresh and speculation.wanted(len(ongoing), rows, cost):
                ahead = runner.look_ahead(ongoing, speculation.drafts, hurry)
                if ahead is not None:
                    speculation.note(ahead.drafted, ahead.right)
                    return ahead.drawn
        else:
            drafts = speculation.propose(ongoing, rows - len(fresh))
        # With fresh sequences the step should be short, because they may get drafts in the next one.
        soon = bool(fresh) and speculation.pays(cost) and speculation.fits(len(ongoing) + len(fresh), rows)
        drawn = runner.advance(ongoing, fresh, hurry or soon, drafts)
        for sequence, tokens, _ in () if callable(drawn) else drawn:
            if sequence in drafts:
                speculation.note(len(drafts[sequence]), len(tokens) - 1)
        return drawn

    def _delivery(self, sequence: Sequence, stop: Stop) -> Callable[[], None]:
        """Free the blocks of a sequence; return the function that delivers its completion."""
        self.scheduler.finish(sequence)
        if self.speculation is not None and not sequence.request.forced:
            self.speculation.drafts.remember(sequence)
        completion = Completion(tuple(sequence.tokens), tuple(sequence.logprobs), sequence.versions, stop)
        return partial(deliver, sequence.future, completion)

    def _versions(self) -> VersionOf:
        return {None: self.version, **{s.key: s.version for s in (*self._slots.values(), *self._retired)}}


@dataclass
class _Slot:
    """An adapter in the bank, and the number of requests that use it."""

    key: str
    version: int = 0
    users: int = 0

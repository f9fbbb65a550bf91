"""Who runs next. Requests wait in order of their key, and are admitted while the cache has room for them whole.

Requests with the same prompt share one `Prompt`: its tokens are computed once, and each request continues it
on blocks of its own. A prompt stays for later requests until its space is needed or the weights change.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from interplay.engines.engine import Request
from interplay.engines.local.cache import BlockCache
from interplay.types import Completion


@dataclass(eq=False)
class Prompt:
    ids: tuple[int, ...]
    blocks: list[int]
    cached: int  # leading tokens that were found in the cache
    hidden: Tensor | None = None  # of the last token, once computed
    users: int = 0


@dataclass(eq=False)
class Sequence:
    """One request in flight. `slots[i]` is the cache slot of token i, prompt included."""

    request: Request
    future: asyncio.Future[Completion]
    prompt: Prompt
    blocks: list[int] = field(default_factory=list)
    owned: list[int] = field(default_factory=list)
    slots: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.prompt.ids) + len(self.tokens)


@dataclass
class Admission:
    prefill: list[Prompt]
    started: list[Sequence]
    copies: list[tuple[int, int]]  # (from block, to block): the half-filled end of a shared prompt


class Scheduler:
    def __init__(self, cache: BlockCache) -> None:
        self.cache = cache
        # Requests arrive on the event loop's thread at any moment of a step, which runs on the engine's.
        self._arrived: deque[tuple[Request, asyncio.Future[Completion]]] = deque()
        self.waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self.running: list[Sequence] = []
        self._prompts: OrderedDict[tuple[int, ...], Prompt] = OrderedDict()
        self.prompt_tokens = 0
        self.saved_tokens = 0

    def add(self, request: Request, future: asyncio.Future[Completion]) -> None:
        self._arrived.append((request, future))

    @property
    def queued(self) -> int:
        return len(self._arrived) + len(self.waiting)

    def collect(self) -> None:
        """Let what has arrived join the queue."""
        while self._arrived:
            self.waiting.append(self._arrived[0])
            self._arrived.popleft()

    def admit(self) -> Admission:
        """Take waiting requests in key order while they fit; drop those nobody waits for any more."""
        self.collect()
        self.waiting = sorted((w for w in self.waiting if not w[1].done()), key=lambda w: w[0].key)
        out = Admission([], [], [])
        taken = 0
        for request, future in self.waiting:
            sequence = self._start(request, future, out)
            if sequence is None:
                break
            taken += 1
            out.started.append(sequence)
        self.running += out.started
        del self.waiting[:taken]
        return out

    def _start(self, request: Request, future: asyncio.Future[Completion], out: Admission) -> Sequence | None:
        cache, size = self.cache, self.cache.block_size
        prompt = self._prompts.get(request.ids)
        shared = len(request.ids) // size
        own_count = cache.blocks_for(len(request.ids) + request.sampling.max_tokens) - shared
        if prompt is None:
            # At least the last token is computed anew, so that its hidden state exists.
            found = cache.match(request.ids[:-1])
            cache.retain(found)
            needed = cache.blocks_for(len(request.ids)) - len(found)
            if not self._make_room(needed + own_count):
                cache.release(found)
                return None
            prompt = Prompt(request.ids, found + cache.allocate(needed), cached=len(found) * size)
            self._prompts[request.ids] = prompt
            out.prefill.append(prompt)
            self.saved_tokens += prompt.cached
        else:
            prompt.users += 1  # so that making room cannot evict it
            fits = self._make_room(own_count)
            prompt.users -= 1
            if not fits:
                return None
            self.saved_tokens += len(request.ids)
        self.prompt_tokens += len(request.ids)
        prompt.users += 1
        self._prompts.move_to_end(request.ids)
        owned = cache.allocate(own_count)
        blocks = prompt.blocks[:shared] + owned
        cache.retain(prompt.blocks[:shared])
        if len(request.ids) % size:
            out.copies.append((prompt.blocks[shared], owned[0]))
        slots = (np.asarray(blocks, np.int64)[:, None] * size + np.arange(size)).reshape(-1)
        return Sequence(request, future, prompt, blocks, owned, slots)

    def _make_room(self, blocks: int) -> bool:
        """Evict prompts that no running request uses, oldest first, until `blocks` are free."""
        if self.cache.free >= blocks:
            return True
        for ids in [ids for ids, p in self._prompts.items() if p.users == 0]:
            self.cache.release(self._prompts.pop(ids).blocks)
            if self.cache.free >= blocks:
                return True
        return False

    def finish(self, sequence: Sequence) -> None:
        """Give back a sequence's blocks; what it computed stays findable for the turn that extends it."""
        computed = sequence.prompt.ids + tuple(sequence.tokens[:-1])
        self.cache.remember(computed, sequence.blocks)
        self.cache.release(sequence.blocks)
        sequence.prompt.users -= 1

    def flush(self) -> None:
        """Forget all cached prompts (those in use go when their users finish)."""
        for prompt in self._prompts.values():
            self.cache.release(prompt.blocks)
        self._prompts.clear()
        self.cache.flush()

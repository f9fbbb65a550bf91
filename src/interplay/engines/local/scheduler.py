"""Decides which requests run next. They wait in the order of their keys, and are admitted while the cache has room for
their prompt and longest possible reply.

Requests with the same prompt (and adapter) share one `CachedPrompt`. Its tokens are computed once, in pieces if it is
long, so that others can decode meanwhile. Each request then continues on blocks of its own. A prompt stays cached for
later requests until its space is needed or the weights change.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from typing import NamedTuple

from torch import Tensor

from interplay.engines.engine import Request
from interplay.engines.local.cache import BlockCache
from interplay.models.senses import Sight
from interplay.types import Completion, MediaSpan

LegalTrie = Mapping[int, "LegalTrie"]  # legal continuations: token -> what may follow it


@dataclass(eq=False)
class CachedPrompt:
    ids: tuple[int, ...]
    identity: tuple[int, ...]  # the ids, with numbers made from digests in place of pictures and sounds
    adapter: str | None
    salt: int  # one per version of an adapter; only prompts with equal salts share cached content
    hashes: list[int]  # of its full blocks
    blocks: list[int]
    done: int  # number of leading tokens that are in the cache
    epoch: int  # of the weights at its start; if the epoch has changed since, its blocks are not reused
    hidden: Tensor | None = None  # of the last token, once computed
    users: int = 0
    detached: bool = False  # the weights changed: only its present users may still use it
    media: tuple[MediaSpan, ...] = ()
    sight: Sight | None = None  # the features of its media, once they are computed


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens of a prompt to compute now: from `start` to before `end`."""

    prompt: CachedPrompt
    start: int
    end: int


@dataclass(eq=False)
class Sequence:
    """One running request. Token i, counted from the start of the prompt, is in block `blocks[i // block size]`."""

    request: Request
    future: asyncio.Future[Completion]
    prompt: CachedPrompt
    blocks: list[int] = field(default_factory=list)
    copy: tuple[int, int] | None = None  # (from block, to block): the partly filled last block of the shared prompt
    ready: bool = False  # its prompt is computed and copied
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)  # (version, place of its first token), by place
    version: int | None = None  # that of the last span
    legal: LegalTrie | None = None  # the legal replies, if only some are legal
    end: int = field(init=False)  # tokens of the prompt and of the longest reply
    restricted: bool = field(init=False)  # some tokens cannot be sampled

    def __post_init__(self) -> None:
        self.end = len(self.request.ids) + self.request.room
        self.restricted = self.legal is not None or self.request.sampling.cuts

    @property
    def length(self) -> int:
        return len(self.request.ids) + len(self.tokens)

    @property
    def versions(self) -> tuple[int, ...]:
        """For each token, the version of the weights that sampled it."""
        runs = pairwise([*self.spans, (0, len(self.tokens))])
        return tuple(chain.from_iterable(repeat(version, end - first) for (version, first), (_, end) in runs))

    def turn_to(self, version: int) -> None:
        """The next tokens are sampled by this version of the weights."""
        self.spans.append((version, len(self.tokens)))
        self.version = version


class Begun(NamedTuple):
    """What a request had sampled before it lost its cache."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()


class Waiting(NamedTuple):
    order: tuple[str, object]
    request: Request
    future: asyncio.Future[Completion]
    begun: Begun = Begun()

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens that must be in the cache before the next token can be sampled."""
        return self.request.ids + self.begun.tokens

    @property
    def identity(self) -> tuple[int, ...]:
        return self.request.identity + self.begun.tokens


class Scheduler:
    def __init__(self, cache: BlockCache, limit: int = 1 << 30) -> None:
        self.cache, self.limit = cache, limit
        # Requests arrive on the event loop's thread at any time, also while a step runs on the engine's thread.
        self._arrived: deque[Waiting] = deque()
        self.waiting: list[Waiting] = []
        self.running: list[Sequence] = []
        self._prompts: OrderedDict[tuple[int, tuple[int, ...]], CachedPrompt] = OrderedDict()
        self._unfinished: list[CachedPrompt] = []
        self._left = 0  # tokens of unfinished prompts that are not computed yet
        self._computing: Counter[int] = Counter()  # hashes of the blocks of unfinished prompts
        self._begun: dict[int, int] = {}  # by hash, the blocks of prompts that began in this step
        self._tries: dict[tuple[tuple[int, ...], ...], LegalTrie] = {}
        self.salts: dict[str | None, int] = {None: 0}
        self.epoch = 0
        self.prompt_tokens = 0
        self.saved_tokens = 0

    def add(self, request: Request, future: asyncio.Future[Completion]) -> None:
        self._arrived.append(Waiting(_order(request.key), request, future))

    @property
    def queued(self) -> int:
        return len(self._arrived) + len(self.waiting)

    def requests(self) -> list[tuple[Request, asyncio.Future[Completion]]]:
        """All requests that wait for an answer. It may be called while a step runs on another thread."""
        waiting = [*list(self._arrived), *list(self.waiting)]
        return [(w.request, w.future) for w in waiting] + [(s.request, s.future) for s in list(self.running)]

    @property
    def computing(self) -> bool:
        """Whether the prompt of some admitted request is not fully computed yet."""
        return bool(self._unfinished)

    def collect(self) -> None:
        """Add arrived requests to the queue, in the order of their keys."""
        if not self._arrived:
            return
        while self._arrived:
            self.waiting.append(self._arrived[0])
            self._arrived.popleft()
        self.waiting = sorted(self.waiting, key=lambda w: w.order)

    def admit(self, budget: int = 1 << 30) -> list[Sequence]:
        """Admit waiting requests in key order while they fit; drop those that nobody waits for any more. `budget` is
        the largest number of prompt tokens that the coming step computes."""
        self.collect()
        self.waiting = [w for w in self.waiting if not w.future.done()]
        self._begun.clear()
        started: list[Sequence] = []
        later = []
        for i, wait in enumerate(self.waiting):
            hashes = self._hashes(wait)
            # Replies to be scored are computed in one forward pass with their prompts, in which every layer writes all
            # keys before it reads any. So their prompts can use the blocks that others compute in the same pass.
            joins = bool(wait.request.forced) and self._left <= budget
            if self._begun_by_another(hashes, joins):
                later.append(wait)
                continue
            fits = len(self.running) + len(started) < self.limit
            sequence = self._start(wait, hashes, joins) if fits else None
            if sequence is None:
                later += self.waiting[i:]
                break
            started.append(sequence)
        self.running += started
        self.waiting = later
        return started

    def _hashes(self, wait: Waiting) -> list[int]:
        """The hashes of a new prompt's full blocks; empty if the whole prompt is cached already."""
        salt = self.salts[wait.request.adapter]
        known = (salt, wait.identity) in self._prompts
        return [] if known else self.cache.hashes(wait.identity, salt=salt)

    def _begun_by_another(self, hashes: list[int], joins: bool) -> bool:
        """Whether a prompt that is being computed now has at least two blocks that this prompt needs and cannot use
        yet. Then it pays to wait for them."""
        if not self._computing or not hashes:
            return False
        known = len(self._usable(hashes, joins))
        return len(hashes) >= known + 2 and all(h in self._computing for h in hashes[known : known + 2])

    def _usable(self, hashes: list[int], joins: bool) -> list[int]:
        """The blocks with the longest beginning of a prompt that are cached or, if it `joins` the prompts that began in
        this step, computed in this step."""
        found = self.cache.match(hashes)
        for h in hashes[len(found) :] if joins else ():
            if h not in self._begun:
                break
            found.append(self._begun[h])
        return found

    def _start(self, wait: Waiting, hashes: list[int], joins: bool) -> Sequence | None:
        cache, size, request = self.cache, self.cache.block_size, wait.request
        ids = wait.ids
        salt = self.salts[request.adapter]
        name = (salt, wait.identity)
        prompt = self._prompts.get(name)
        shared = len(ids) // size
        own_count = cache.blocks_for(len(request.ids) + request.room) - shared
        if prompt is None:
            # At least the last token is computed again, because its hidden state is needed.
            found = self._usable(hashes[: (len(ids) - 1) // size], joins)
            cache.retain(found)
            needed = cache.blocks_for(len(ids)) - len(found)
            if not self._make_room(needed + own_count):
                cache.release(found)
                return None
            blocks = found + cache.allocate(needed)
            done = len(found) * size
            prompt = CachedPrompt(ids, wait.identity, request.adapter, salt, hashes, blocks, done, self.epoch)
            prompt.media = request.media
            self._prompts[name] = prompt
            self._unfinished.append(prompt)
            self._computing.update(hashes)
            self._left += len(ids) - done
            for h, block in zip(hashes, blocks, strict=False):
                self._begun.setdefault(h, block)
            self.saved_tokens += prompt.done
        else:
            prompt.users += 1  # so that making room cannot evict it
            fits = self._make_room(own_count)
            prompt.users -= 1
            if not fits:
                return None
            self.saved_tokens += len(ids)
        self.prompt_tokens += len(ids)
        prompt.users += 1
        self._prompts.move_to_end(name)
        owned = cache.allocate(own_count)
        blocks = prompt.blocks[:shared] + owned
        cache.retain(prompt.blocks[:shared])
        copy = (prompt.blocks[shared], owned[0]) if len(ids) % size else None
        sequence = Sequence(request, wait.future, prompt, blocks, copy, legal=self._trie(request.legal))
        for token, logprob, version in zip(*wait.begun, strict=True):
            if version != sequence.version:
                sequence.turn_to(version)
            sequence.tokens.append(token)
            sequence.logprobs.append(logprob)
        return sequence

    def _trie(self, legal: tuple[tuple[int, ...], ...]) -> LegalTrie | None:
        if not legal:
            return None
        if legal not in self._tries:
            if len(self._tries) > 10_000:
                self._tries.clear()
            self._tries[legal] = legal_trie(legal)
        return self._tries[legal]

    def _make_room(self, blocks: int) -> bool:
        """Evict prompts that no running request uses, oldest first, until `blocks` are free."""
        if self.cache.free >= blocks:
            return True
        gone = []
        for name, prompt in self._prompts.items():
            if not prompt.users and prompt.hidden is not None:
                self.cache.release(prompt.blocks)
                gone.append(name)
                if self.cache.free >= blocks:
                    break
        for name in gone:
            del self._prompts[name]
        return self.cache.free >= blocks

    def pieces(self, budget: int) -> list[Piece]:
        """The pieces of unfinished prompts to compute now: at most `budget` tokens, in order of admission."""
        out: list[Piece] = []
        for prompt in self._unfinished:
            if budget <= 0:
                break
            end = min(len(prompt.ids), prompt.done + budget)
            out.append(Piece(prompt, prompt.done, end))
            budget -= end - prompt.done
        return out

    def scored(self, pieces: list[Piece]) -> list[Sequence]:
        """The sequences whose replies can be scored together with these pieces: their prompt is in the cache, or will
        be after the pieces."""
        ends = {id(piece.prompt): piece.end for piece in pieces}
        forced = [s for s in self.running if s.request.forced]
        return [s for s in forced if ends.get(id(s.prompt), s.prompt.done) == len(s.prompt.ids)]

    def computed(self, pieces: list[Piece]) -> list[Sequence]:
        """Record that the pieces are in the cache; return the sequences whose prompt is now complete."""
        for piece in pieces:
            self._left -= piece.end - piece.prompt.done
            piece.prompt.done = piece.end
            if piece.end == len(piece.prompt.ids):
                self._abandon(piece.prompt)
                if piece.prompt.epoch == self.epoch:
                    self.cache.remember(piece.prompt.hashes, piece.prompt.blocks)
        fresh = [s for s in self.running if not s.ready and s.prompt.hidden is not None]
        for sequence in fresh:
            sequence.ready = True
        return fresh

    def finish(self, sequence: Sequence) -> None:
        """Release a sequence's blocks. Their content stays findable for the next turn, which may extend it."""
        if sequence.ready and sequence.prompt.epoch == self.epoch:
            computed = sequence.request.identity + tuple(sequence.tokens[:-1])
            self.cache.remember(self.cache.hashes(computed, sequence.prompt.hashes), sequence.blocks)
        self._give_back(sequence)

    def _give_back(self, sequence: Sequence) -> None:
        self.cache.release(sequence.blocks)
        prompt = sequence.prompt
        prompt.users -= 1
        if prompt.users:
            return
        unfinished = prompt in self._unfinished  # no request needs the rest of it
        if unfinished:
            self._abandon(prompt)
        if prompt.detached or (unfinished and self._prompts.pop((prompt.salt, prompt.identity), None) is not None):
            self.cache.release(prompt.blocks)

    def restart(self) -> None:
        """The weights changed: put every running sequence back into the queue, so that its cache is computed again. It
        keeps its tokens."""
        for sequence in self.running:
            begun = Begun(tuple(sequence.tokens), tuple(sequence.logprobs), sequence.versions)
            request = sequence.request
            self._give_back(sequence)
            self.waiting.append(Waiting(_order(request.key), request, sequence.future, begun))
        self.running = []
        self.waiting = sorted(self.waiting, key=lambda w: w.order)

    def _abandon(self, prompt: CachedPrompt) -> None:
        self._unfinished.remove(prompt)
        self._left -= len(prompt.ids) - prompt.done
        for h in prompt.hashes:
            self._computing[h] -= 1
            if not self._computing[h]:
                del self._computing[h]

    def end_all(self) -> list[tuple[Request, asyncio.Future[Completion]]]:
        """Forget all requests and everything computed so far. Returns the requests that waited for an answer."""
        self.collect()
        waiting = self.requests()
        for sequence in self.running:
            self.finish(sequence)
        self.running, self.waiting = [], []
        self.flush()
        return waiting

    def flush(self) -> None:
        """Make sure that nothing computed so far is reused. Prompts in use are released when their users finish."""
        for prompt in self._prompts.values():
            if prompt.users:
                prompt.detached = True
            else:
                self.cache.release(prompt.blocks)
        self._prompts.clear()
        self.cache.flush()
        self.epoch += 1


def _order(part: object) -> tuple[str, object]:
    """A sort key for request keys. Parts of the same type are compared by value, parts of different types by the type's
    name, because the keys of turns and scores have different shapes."""
    return type(part).__name__, tuple(map(_order, part)) if isinstance(part, tuple) else part


def legal_trie(legal: tuple[tuple[int, ...], ...]) -> LegalTrie:
    """The replies as a trie of nested dicts. "1" is not a prefix of "10", because each reply includes its end token."""
    root: dict[int, dict] = {}
    for reply in legal:
        node = root
        for token in reply:
            node = node.setdefault(token, {})
    return root

"""Bookkeeping of blocks and queue under random histories: a simulated memory without tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interplay.engines.engine import Request, Sampling
from interplay.engines.local.cache import BlockCache
from interplay.engines.local.scheduler import Scheduler, Sequence
from interplay.types import MediaSpan, identity

few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)
calm = settings(max_examples=150)


def check_counts(cache: BlockCache, holders: list[list[int]]) -> None:
    """Every reference has an owner, unreferenced blocks are free, and block 0 has no owner."""
    held = Counter(block for blocks in holders for block in blocks)
    assert [cache._refs[b] for b in range(1, cache.total + 1)] == [held[b] for b in range(1, cache.total + 1)]
    assert 0 not in held
    assert set(cache._free) == {b for b in range(1, cache.total + 1) if not held[b]}


@calm
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("start"), few_tokens),
            st.tuples(st.just("finish"), st.integers(0, 50)),
            st.tuples(st.just("flush"), st.none()),
        ),
        max_size=40,
    )
)
def test_blocks_are_counted_matched_by_content_and_all_come_back(operations: list[tuple[str, Any]]) -> None:
    cache = BlockCache(blocks=12, block_size=2)
    holders: list[list[int]] = []
    content: dict[int, tuple[int, ...]] = {}  # what each block was last filled with: everything up to its end
    stale: set[int] = set()  # filled before the weights changed
    for operation, argument in operations:
        if operation == "start":
            found = cache.match(cache.hashes(argument))
            assert len(found) * 2 <= len(argument)
            for i, block in enumerate(found):
                assert content[block] == argument[: 2 * (i + 1)]
                assert block not in stale
            cache.retain(found)
            needed = cache.blocks_for(len(argument)) - len(found)
            if needed > cache.free:
                cache.release(found)
                continue
            in_use = {b for blocks in holders for b in blocks} | set(found)
            new = cache.allocate(needed)
            assert len(set(new)) == needed
            assert not in_use & set(new), "a block was handed out twice"
            for i, block in enumerate(new, start=len(found)):
                content[block] = argument[: 2 * (i + 1)]
                stale.discard(block)
            holders.append(found + new)
            cache.remember(cache.hashes(argument), found + new)
        elif operation == "finish" and holders:
            cache.release(holders.pop(argument % len(holders)))
        elif operation == "flush":
            cache.flush()
            stale |= set(content)
        check_counts(cache, holders)
    for blocks in holders:
        cache.release(blocks)
    assert cache.free == cache.total == 11


def test_a_released_block_is_found_until_its_space_is_needed_tails_first() -> None:
    cache = BlockCache(blocks=4, block_size=2)
    blocks = cache.allocate(3)
    cache.remember(cache.hashes((1, 2, 3, 4, 5, 6)), blocks)
    cache.release(blocks)
    assert cache.free == 3
    assert cache.match(cache.hashes((1, 2, 3, 4, 9, 9))) == blocks[:2]
    cache.allocate(1)
    assert cache.match(cache.hashes((1, 2, 3, 4, 5, 6))) == blocks[:2], "the tail goes before the beginning"
    cache.flush()
    assert cache.match(cache.hashes((1, 2, 3, 4))) == []


DONE: Any = "a hidden state"


class Waiter:
    """The part of a future that the scheduler uses."""

    cancelled = False

    def done(self) -> bool:
        return self.cancelled


@dataclass
class Simulation:
    """A scheduler whose 'keys and values' are the tokens themselves (and numbers of pictures instead of their
    placeholders), written where a model would write them."""

    scheduler: Scheduler
    memory: dict[int, int | None] = field(default_factory=dict)  # slot -> token
    started: int = 0

    def slot(self, blocks: list[int], position: int) -> int:
        size = self.scheduler.cache.block_size
        return blocks[position // size] * size + position % size

    def read(self, sequence: Sequence, count: int) -> tuple[int | None, ...]:
        return tuple(self.memory[self.slot(sequence.blocks, i)] for i in range(count))

    def admit(self) -> None:
        size = self.scheduler.cache.block_size
        for sequence in self.scheduler.admit():
            self.started += 1
            room = len(sequence.request.ids) + sequence.request.sampling.max_tokens
            assert len(sequence.blocks) * size >= room, "a request that is admitted fits whole"
        self.compute(3)

    def compute(self, budget: int) -> None:
        """Computes a piece of the unfinished prompts, as an engine's step would."""
        size = self.scheduler.cache.block_size
        pieces = self.scheduler.pieces(budget)
        assert sum(p.end - p.start for p in pieces) <= budget
        for piece in pieces:
            assert piece.start < piece.end, "the last token must be computed, for its hidden state"
            for i in range(piece.start, piece.end):
                self.memory[self.slot(piece.prompt.blocks, i)] = piece.prompt.identity[i]
            if piece.end == len(piece.prompt.ids):
                piece.prompt.hidden = DONE
        for sequence in self.scheduler.computed(pieces):
            if sequence.copy is not None:
                source, target = sequence.copy
                for i in range(size):
                    self.memory[target * size + i] = self.memory.get(source * size + i)
            sequence.tokens.append(7)

    def decode(self, sequence: Sequence, token: int) -> None:
        if not sequence.ready:
            self.compute(2)
            return
        if len(sequence.tokens) >= sequence.request.sampling.max_tokens:
            self.finish(sequence)
            return
        self.memory[self.slot(sequence.blocks, sequence.length - 1)] = sequence.tokens[-1]
        sequence.tokens.append(token)

    def finish(self, sequence: Sequence) -> None:
        computed = sequence.request.identity + tuple(sequence.tokens[:-1]) if sequence.ready else ()
        assert self.read(sequence, len(computed)) == computed
        self.scheduler.running.remove(sequence)
        self.scheduler.finish(sequence)

    def check(self) -> None:
        scheduler = self.scheduler
        prompts = list(scheduler._prompts.values())
        check_counts(scheduler.cache, [p.blocks for p in prompts] + [s.blocks for s in scheduler.running])
        for sequence in scheduler.running:  # what a sequence writes to is nobody else's
            others = [p.blocks for p in prompts] + [s.blocks for s in scheduler.running if s is not sequence]
            owned = sequence.blocks[len(sequence.prompt.ids) // scheduler.cache.block_size :]
            assert not {b for blocks in others for b in blocks} & set(owned)
            if not sequence.ready:
                continue
            assert self.read(sequence, len(sequence.prompt.ids)) == sequence.request.identity
        for prompt in prompts:
            assert prompt.users == sum(s.prompt is prompt for s in scheduler.running)


@calm
@given(
    blocks=st.integers(6, 16),
    operations=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.tuples(few_tokens, st.integers(1, 6), st.sampled_from(["", "ca7", "d09"]))),
            st.tuples(st.just("admit"), st.none()),
            st.tuples(st.sampled_from(["decode", "finish", "cancel"]), st.integers(0, 50)),
        ),
        max_size=60,
    ),
)
def test_scheduler_shares_prompts_never_a_written_block_and_ends_empty(
    blocks: int, operations: list[tuple[str, Any]]
) -> None:
    cache = BlockCache(blocks, block_size=2)
    simulation = Simulation(Scheduler(cache))
    scheduler, added = simulation.scheduler, 0
    for operation, argument in operations:
        if operation == "add":
            ids, max_tokens, picture = argument
            media = (MediaSpan(len(ids) // 2, len(ids) - len(ids) // 2, picture),) if picture else ()
            if cache.blocks_for(len(ids)) + cache.blocks_for(len(ids) + max_tokens) - len(ids) // 2 <= cache.total:
                request = Request((added,), ids, seed=0, sampling=Sampling(max_tokens=max_tokens), media=media)
                scheduler.add(request, Waiter())  # type: ignore[arg-type]
                added += 1
        elif operation == "admit":
            simulation.admit()
            assert scheduler.running or not scheduler.queued, "what can ever be served is served when all is quiet"
        elif operation == "cancel" and scheduler.queued:
            scheduler.collect()
            waiter: Any = scheduler.waiting[argument % len(scheduler.waiting)].future
            added -= not waiter.cancelled
            waiter.cancelled = True
        elif scheduler.running:
            sequence = scheduler.running[argument % len(scheduler.running)]
            if operation == "decode":
                simulation.decode(sequence, argument % 3)
            else:
                simulation.finish(sequence)
        simulation.check()
    while scheduler.queued or scheduler.running:
        simulation.admit()
        assert scheduler.running or not scheduler.queued
        for sequence in scheduler.running[:1]:
            simulation.finish(sequence)
    simulation.check()
    assert simulation.started == added, "every request was served once"
    scheduler.flush()
    simulation.check()
    assert cache.free == cache.total


def test_promise_12_prompts_with_different_pictures_share_what_comes_before_them_and_nothing_else() -> None:
    """Equal ids: two prompts with the same picture are one prompt, the third shares the two blocks before its
    picture."""
    simulation = Simulation(Scheduler(BlockCache(blocks=40, block_size=2)))
    ids = (5, 5, 5, 5, 9, 9, 6, 6, 6)
    for key, picture in enumerate(("ca7", "ca7", "d09")):
        request = Request((key,), ids, 0, Sampling(max_tokens=2), media=(MediaSpan(4, 2, picture),))
        simulation.scheduler.add(request, Waiter())  # type: ignore[arg-type]
        simulation.admit()
        simulation.compute(99)
    one, same, other = simulation.scheduler.running
    assert one.prompt is same.prompt is not other.prompt
    assert one.blocks[:4] == same.blocks[:4]
    assert one.blocks[:2] == other.blocks[:2] and not {*one.blocks[2:]} & {*other.blocks[2:]}
    simulation.check()


def test_requests_are_admitted_in_the_order_of_their_keys() -> None:
    scheduler = Scheduler(BlockCache(blocks=9, block_size=2))
    for key in (3, 1, 2):
        request = Request((key,), (key,) * 4, seed=0, sampling=Sampling(max_tokens=2))
        scheduler.add(request, Waiter())  # type: ignore[arg-type]
    assert [s.request.key for s in scheduler.admit()] == [(1,), (2,)]
    assert [w.request.key for w in scheduler.waiting] == [(3,)]


def test_a_cancelled_request_that_waits_is_dropped() -> None:
    scheduler = Scheduler(BlockCache(blocks=9, block_size=2))
    waiter = Waiter()
    scheduler.add(Request((0,), (1, 2), seed=0, sampling=Sampling(max_tokens=2)), waiter)  # type: ignore[arg-type]
    waiter.cancelled = True
    assert scheduler.admit() == []
    assert scheduler.queued == 0
    assert scheduler.cache.free == scheduler.cache.total


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (16, 1), (17, 2), (32, 2)])
def test_blocks_for_rounds_up(tokens: int, blocks: int) -> None:
    assert BlockCache(4, 16).blocks_for(tokens) == blocks


def test_names_of_blocks_go_on_from_those_known_and_never_meet_across_salts() -> None:
    cache = BlockCache(blocks=4, block_size=2)
    ids = (1, 2, 3, 4, 5)
    assert cache.hashes(ids, cache.hashes(ids[:3], salt=7), salt=7) == cache.hashes(ids, salt=7)
    assert not set(cache.hashes(ids, salt=7)) & set(cache.hashes(ids, salt=8))


def test_promise_12_blocks_of_equal_ids_with_different_pictures_have_different_names() -> None:
    cache = BlockCache(blocks=4, block_size=2)
    ids = (5, 5, 9, 9, 6, 6)
    names = [cache.hashes(identity(ids, media)) for media in ((), (MediaSpan(2, 2, "ca7"),), (MediaSpan(2, 2, "d09"),))]
    assert len({first for first, *_ in names}) == 1
    assert len({name for _, *rest in names for name in rest}) == 6

"""Replies that are scored: the same log-probs as a plain forward pass gives, in one forward pass of the engine."""

from __future__ import annotations

import asyncio
import copy
import random
from dataclasses import replace
from typing import Any

import pytest
from families import make
from helpers import Hold, ask, close_to, empty, full_forward, merged, random_adapter, serve, words

from interplay.engines.engine import Request
from interplay.engines.local import LocalEngine


def counted(engine: LocalEngine) -> list[int]:
    """The number of new tokens of each forward pass from now on."""
    runner: Any = engine.runner
    passes: list[int] = []
    forward = runner._forward

    def noted(ids: Any, *rest: Any) -> Any:
        passes.append(len(ids))
        return forward(ids, *rest)

    runner._forward = noted
    return passes


def scoring(prompts: list[tuple[int, ...]], seed: int) -> list[Request]:
    """Three replies to each prompt: of one token, of a few, and of more than a block."""
    rng = random.Random(seed)
    return [ask(3 * i + k, p, forced=words(rng, n)) for i, p in enumerate(prompts) for k, n in enumerate((1, 3, 7))]


def alike(count: int, common: int) -> list[tuple[int, ...]]:
    """Prompts that begin with the same tokens. Some fill their last block, and the others fill only a part of it."""
    rng = random.Random(5)
    beginning = words(rng, common)
    return [beginning + words(rng, 1 + i) for i in range(count)]


@pytest.mark.parametrize("family", ["qwen2", "gemma3", "gpt2"])  # with joined matrices; with modules; learned positions
def test_prompts_with_one_beginning_and_their_replies_take_one_forward_pass(family: str) -> None:
    model = make(family)
    engine = LocalEngine(model, cache_tokens=2048, block_size=4)
    passes, requests = counted(engine), scoring(alike(6, 21), 0)
    for request, found in zip(requests, serve(engine, requests), strict=True):
        assert found.tokens == request.forced
        close_to(found.logprobs, full_forward(model, request.ids, request.forced))
    own = sum(len(p) for p in alike(6, 21)) - 5 * 20  # five whole blocks are the same, and computed once
    assert passes == [own + sum(len(r.forced) - 1 for r in requests)]
    assert empty(engine)


def test_prompts_that_are_cached_are_not_computed_again() -> None:
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=2048, block_size=4)
    prompts = alike(3, 10)
    serve(engine, [ask(i, p, 1) for i, p in enumerate(prompts)])
    passes, requests = counted(engine), scoring(prompts, 1)
    for request, found in zip(requests, serve(engine, requests), strict=True):
        close_to(found.logprobs, full_forward(model, request.ids, request.forced))
    assert passes == [sum(len(r.forced) - 1 for r in requests)]
    short = [r for r in requests if len(r.forced) == 1]
    assert len(serve(engine, short)) == 3 and len(passes) == 1, "the prompt's last state gives the first token"
    assert empty(engine)


def test_prompts_longer_than_a_step_are_scored_when_they_are_complete() -> None:
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=2048, block_size=4, prefill_tokens=9)
    requests = scoring(alike(4, 21), 2)
    for request, found in zip(requests, serve(engine, requests), strict=True):
        close_to(found.logprobs, full_forward(model, request.ids, request.forced))
    assert empty(engine)


def test_adapters_are_scored_in_one_forward_pass_each_with_its_own_weights() -> None:
    model = make("llama")
    adapters = {name: random_adapter(model, 3, seed) for seed, name in enumerate("ab")}
    expected = {name: merged(copy.deepcopy(model), adapter) for name, adapter in adapters.items()} | {None: model}
    engine = LocalEngine(model, cache_tokens=2048, block_size=4)
    for name, adapter in adapters.items():
        engine.load(name, adapter, 1)
    requests = scoring(alike(3, 13), 3)
    requests = [replace(r, key=(name, *r.key), adapter=name) for name in (None, "a", "b") for r in requests]
    passes = counted(engine)
    for request, found in zip(requests, serve(engine, requests), strict=True):
        close_to(found.logprobs, full_forward(expected[request.adapter], request.ids, request.forced))
    assert len(passes) == 1


def test_replies_are_scored_beside_others_that_are_sampled() -> None:
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=2048, block_size=4)
    prompts = alike(4, 21)
    sampled = [ask(100 + i, p, 5) for i, p in enumerate(prompts)]
    alone = serve(LocalEngine(model, cache_tokens=2048, block_size=4), sampled)
    requests = scoring(prompts, 4)
    found = serve(engine, [*sampled, *requests])
    assert [f.tokens for f in found[:4]] == [f.tokens for f in alone]
    for request, scored in zip(requests, found[4:], strict=True):
        close_to(scored.logprobs, full_forward(model, request.ids, request.forced))
    assert empty(engine)


def test_a_cancelled_score_leaves_nothing_behind() -> None:
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=2048, block_size=4, prefill_tokens=9)
    requests = scoring(alike(4, 21), 5)

    hold = Hold(engine, lambda: engine.scheduler.computing)

    async def play() -> None:
        tasks = [asyncio.create_task(engine.generate(r)) for r in requests]
        await hold.reached()  # the first prompt is computed in part
        for task in tasks[:6]:
            task.cancel()
        await asyncio.sleep(0)
        hold.release()
        found = await asyncio.gather(*tasks[6:])
        for request, scored in zip(requests[6:], found, strict=True):
            close_to(scored.logprobs, full_forward(model, request.ids, request.forced))

    asyncio.run(asyncio.wait_for(play(), 60))
    assert empty(engine) and engine.scheduler._left == 0

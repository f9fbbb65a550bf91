"""Thousands of random requests, some cancelled, some impossible, some malformed: nothing is left behind, and each
result depends only on its own request."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from families import COMMON, WORDS, make
from helpers import Hold, close_to, empty, full_forward, merged, random_adapter, serve, words
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.speculation import Speculation
from interplay.errors import EngineError
from interplay.models.attention import NAME
from interplay.types import Completion, Stop

RANKS = {"a": 2, "b": 5}


def small(attention: str = NAME) -> PreTrainedModel:
    """One layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        options = COMMON | {
            "num_hidden_layers": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_attention_heads": 2,
        }
        config = LlamaConfig(num_key_value_heads=1, head_dim=8, initializer_range=0.3, **options)
        return AutoModelForCausalLM.from_config(config, attn_implementation=attention).float().eval()


def random_request(rng: random.Random, number: int, prompts: list[tuple[int, ...]]) -> Request:
    ids = rng.choice(prompts)[: rng.randint(1, 40)] if rng.random() < 0.7 else words(rng, rng.randint(1, 40))
    sampling = Sampling(rng.choice([1.0, 1.0, 0.7, 0.0]), rng.randint(1, 10), (1, 2, 3, 4))
    key = rng.choice([(number,), (rng.random(), number), ("late", number, (1, "x"))])
    request = Request(key, ids, rng.getrandbits(62), sampling, rng.choice([None, None, *RANKS]))
    kind = rng.random()
    if kind < 0.15:
        legal = tuple({(*words(rng, rng.randint(1, 3)), 1) for _ in range(rng.randint(1, 6))})
        return replace(request, legal=legal, sampling=replace(sampling, max_tokens=4))
    if kind < 0.3:
        return replace(request, forced=words(rng, rng.randint(1, 12)))
    if kind < 0.4:
        return replace(request, sampling=replace(sampling, top_k=rng.randint(0, 5), top_p=rng.uniform(0.1, 1)))
    return request


def broken(rng: random.Random, request: Request) -> Request:
    """A request that can never be served."""
    change: dict[str, Any] = rng.choice([
        {"ids": ()},
        {"ids": (5, WORDS + 3)},
        {"ids": words(rng, 300)},
        {"ids": words(rng, 235), "sampling": Sampling(1.0, 10)},  # fits the model, not the cache
        {"sampling": Sampling(1.0, 0)},
        {"sampling": Sampling(1.0, 1000)},
        {"sampling": Sampling(-1.0, 4)},
        {"sampling": Sampling(1.0, 4, top_p=2.0)},
        {"adapter": "nobody"},
        {"legal": ((),)},
        {"legal": ((5,), (5, 6))},
        {"seed": -3},
    ])  # fmt: skip
    return replace(request, forced=(), **change)


def check(request: Request, completion: Completion) -> None:
    assert len(completion.tokens) == len(completion.logprobs) > 0
    assert all(math.isfinite(p) and p <= 1e-5 for p in completion.logprobs)
    if request.forced:
        assert completion.tokens == request.forced
    elif request.legal:
        assert completion.tokens in request.legal
        assert completion.stop is Stop.END
    else:
        ended = completion.tokens[-1] in request.sampling.stop
        assert ended == (completion.stop is Stop.END)
        assert ended or len(completion.tokens) == request.sampling.max_tokens
        assert not set(completion.tokens[:-1]) & set(request.sampling.stop)


async def storm(engine: LocalEngine, rng: random.Random, first: int, count: int, checked: Any) -> Counter[str]:
    """`count` requests, at most a hundred at a time; some answers make other callers cancel their requests. What is
    drawn for a request depends on its number alone; only who is cancelled depends on the order of the answers."""
    prompts = [words(rng, 40) for _ in range(12)]
    seed = rng.getrandbits(62)
    seats = asyncio.Semaphore(100)
    waiting: dict[int, asyncio.Task[Completion]] = {}
    ends: Counter[str] = Counter()

    async def one(number: int) -> None:
        async with seats:
            dice = random.Random(f"{seed} {number}")
            request = random_request(dice, number, prompts)
            if bad := dice.random() < 0.08:
                request = broken(dice, request)
            waiting[number] = task = asyncio.create_task(engine.generate(request))
            try:
                completion = await task
                assert not bad
                check(request, completion)
                checked(request, completion, dice)
                ends["served"] += 1
            except EngineError as error:
                assert bad, error
                ends["refused"] += 1
            except asyncio.CancelledError:
                ends["cancelled"] += 1
            del waiting[number]
            if dice.random() < 0.1 and waiting:
                waiting[dice.choice(list(waiting))].cancel()

    await asyncio.wait_for(asyncio.gather(*(one(first + i) for i in range(count))), timeout=300)
    return ends


def weather(count: int, speculation: Speculation | None = None) -> None:
    rng = random.Random(count)
    model = small()
    engine = LocalEngine(model, 240, 4, prefill_tokens=64, max_running=48, speculation=speculation)
    plain: dict[str | None, Any] = {None: small("sdpa")}
    ends: Counter[str] = Counter()
    looked, share = 0, 100 / count

    def sometimes(request: Request, completion: Completion, dice: random.Random) -> None:
        nonlocal looked
        sampling = request.sampling
        if not request.legal and not sampling.cuts and sampling.temperature and dice.random() < share:
            expected = full_forward(plain[request.adapter], request.ids, completion.tokens, sampling.temperature)
            close_to(completion.logprobs, expected)
            looked += 1

    wave = 250
    for number in range(0, count, wave):
        for name, rank in RANKS.items():
            if number == 0 or rng.random() < 0.3:
                adapter = random_adapter(model, rng.randint(1, rank), rng.randrange(1000))
                engine.load(name, adapter, number)
                plain[name] = merged(small("sdpa"), adapter)
        ends += asyncio.run(storm(engine, rng, number, wave, sometimes))
        assert empty(engine)
    assert sum(ends.values()) == count
    assert min(ends["served"] / 2, ends["refused"], ends["cancelled"]) > count / 50, "this test should press"
    assert looked >= 10, "about 50 are expected"
    assert engine.scheduler.saved_tokens > 0
    after = Request((0,), (5, 6, 7), 1, Sampling(1.0, 8), "a")
    close_to((got := serve(engine, [after])[0]).logprobs, full_forward(plain["a"], after.ids, got.tokens))
    engine.close()


def test_five_hundred_random_requests_end_with_an_empty_cache() -> None:
    weather(500)


@pytest.mark.long
@pytest.mark.slow
def test_ten_thousand_random_requests_end_with_an_empty_cache() -> None:
    weather(10_000)


def test_a_prompt_that_is_given_up_half_computed_leaves_nothing() -> None:
    engine = LocalEngine(small(), 240, 4, prefill_tokens=8)
    rng = random.Random(1)
    long, short = (Request((i,), words(rng, n), 1, Sampling(1.0, 6)) for i, n in enumerate((60, 3)))
    half = Hold(engine, lambda: any(p.done for p in engine.scheduler._unfinished))

    async def play() -> Completion:
        given_up, kept = (asyncio.create_task(engine.generate(r)) for r in (long, short))
        await half.reached()
        given_up.cancel()
        await asyncio.sleep(0)
        half.release()
        return await kept

    completion = asyncio.run(asyncio.wait_for(play(), timeout=60))
    assert not engine.scheduler._unfinished, "nobody computes the rest"
    assert [p.ids for p in engine.scheduler._prompts.values()] == [short.ids]
    assert empty(engine)
    for request, expected in ((short, completion.tokens), (long, None)):
        again = serve(engine, [request])[0]
        assert expected in (None, again.tokens)
        close_to(again.logprobs, full_forward(small("sdpa"), request.ids, again.tokens))


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return make("mistral")  # with windows


def one_engine(model: PreTrainedModel, **options: Any) -> LocalEngine:
    engine = LocalEngine(model, **{"cache_tokens": 4096, "block_size": 4} | options)
    for seed, (name, rank) in enumerate(RANKS.items()):
        engine.load(name, random_adapter(model, rank, seed), 0)
    return engine


@pytest.fixture(scope="module")
def alone(model: PreTrainedModel) -> list[tuple[Request, Completion]]:
    """What each of forty requests gets from an engine that serves nothing else."""
    rng = random.Random(4)
    prompts = [words(rng, 40) for _ in range(4)]
    engine = one_engine(model)
    out = []
    for number in range(40):
        request = random_request(rng, number, prompts)
        out.append((request, serve(engine, [request])[0]))
        engine.update(0)
    engine.close()
    return out


@settings(max_examples=12)
@given(
    order=st.permutations(range(40)),
    count=st.integers(1, 40),
    prefill_tokens=st.sampled_from([3, 17, 16_384]),
    cache_tokens=st.sampled_from([120, 4096]),
    max_running=st.sampled_from([2, 1024]),
    block_size=st.sampled_from([4, 16]),
)
def test_a_request_gets_the_same_tokens_whatever_else_there_is(
    model: PreTrainedModel, alone: list[tuple[Request, Completion]], order: list[int], count: int, **options: int
) -> None:
    engine = one_engine(model, **options)
    some = [alone[i] for i in order[:count]]
    keyed = [replace(request, key=(place,)) for place, (request, _) in enumerate(some)]
    for (_, expected), completion in zip(some, serve(engine, keyed), strict=True):
        assert completion.tokens == expected.tokens
        assert completion.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    assert empty(engine)
    engine.close()

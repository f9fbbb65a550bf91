"""Speculative sampling changes nothing but the time: the same tokens and log-probs as without drafts, whatever the
drafts are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from families import WORDS, make
from helpers import Hold, empty, full_forward, random_adapter, serve, words
from test_inflight import sampled
from test_storm import weather
from transformers import PreTrainedModel

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local import drafts as drafting
from interplay.engines.local import speculation as speculating
from interplay.engines.local.drafts import Drafts
from interplay.engines.local.speculation import AUTO_ROWS, Speculation
from interplay.types import Completion

STOP = (1, 2)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return make("mistral")  # with windows


class Numbers:
    """The part of a tokenizer that stop strings need: every token is its number in brackets."""

    def decode(self, tokens: list[int], **options: Any) -> str:
        return "".join(f"[{t}]" for t in tokens)


def engine_of(model: PreTrainedModel, on: bool, tokens: int = 4, **options: Any) -> LocalEngine:
    given: dict[str, Any] = {"cache_tokens": 4096, "block_size": 4, "tokenizer": Numbers()} | options
    made = LocalEngine(model, speculation=Speculation("on", tokens) if on else None, **given)
    for seed, name in enumerate("ab"):
        made.load(name, random_adapter(model, 3, seed, scale=0.1), 0)
    return made


def equal(a: Sequence[Completion], b: Sequence[Completion]) -> None:
    for one, other in zip(a, b, strict=True):
        assert (one.tokens, one.stop, one.versions) == (other.tokens, other.stop, other.versions)
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-4, rtol=0)


def group(rng: random.Random, number: int, replies: int = 4, heat: float = 0.3, **more: Any) -> list[Request]:
    """Several replies to one prompt. At a low temperature they have much in common."""
    ids = words(rng, rng.randint(1, 20))
    sampling = Sampling(heat, 24, STOP)
    return [Request((number, i), ids, rng.getrandbits(60), sampling, **more) for i in range(replies)]


def plain_groups(rng: random.Random) -> list[Request]:
    return [r for i in range(3) for r in group(rng, i)]


def masked(rng: random.Random) -> list[Request]:
    legal = tuple({(*words(rng, 2), 7, 8, 9, *words(rng, rng.randint(1, 3)), 1) for _ in range(5)})
    return [*group(rng, 0, heat=1.0, legal=legal), *group(rng, 1)]


def cut(rng: random.Random) -> list[Request]:
    some = group(rng, 0)
    return [*(replace(r, sampling=replace(r.sampling, top_k=9, top_p=0.9, min_p=0.01)) for r in some), *group(rng, 1)]


def stop_texts(rng: random.Random) -> list[Request]:
    return [replace(r, sampling=replace(r.sampling, stop_strings=("][5", "3][4"))) for r in plain_groups(rng)]


def two_adapters(rng: random.Random) -> list[Request]:
    some = group(rng, 0, 6)
    return [replace(r, adapter=(None, "a", "b")[i % 3]) for i, r in enumerate(some)] + group(rng, 1, adapter="a")


def tree(rng: random.Random) -> list[Request]:
    """Siblings, and children whose prompts begin with the same tokens."""
    some = group(rng, 0)
    children = [
        replace(r, key=(9, i, j), ids=r.ids + words(rng, 3), seed=j) for i, r in enumerate(some) for j in (1, 2)
    ]
    return [*some, *children]


KINDS: list[Callable[[random.Random], list[Request]]] = [plain_groups, masked, cut, stop_texts, two_adapters, tree]


@pytest.mark.parametrize("kind", KINDS)
def test_replies_are_the_same_with_drafts_and_without(
    model: PreTrainedModel, kind: Callable[[random.Random], list[Request]]
) -> None:
    plain, ours = engine_of(model, False), engine_of(model, True)
    for epoch in range(3):  # later ones meet earlier replies to the same prompts
        wanted = kind(random.Random(6))
        if epoch < 2:  # the last epoch has the random numbers of the first
            wanted = [replace(r, seed=r.seed + epoch) for r in wanted]
        equal(serve(plain, wanted), serve(ours, wanted))
    stats = ours.stats()
    assert 0 < stats.accepted_tokens < stats.drafted_tokens, "right and wrong drafts"
    assert plain.stats().drafted_tokens == 0
    assert stats.sampled_tokens == plain.stats().sampled_tokens or kind is stop_texts
    assert empty(ours)


class Planted(Drafts):
    """Drafts that a test chooses: `guess` gets a sequence's seed and the number of its tokens."""

    def __init__(self, length: int, guess: Callable[[int, int], Sequence[int]]) -> None:
        super().__init__(length)
        self.guess = guess

    def propose(self, sequences: Any) -> Any:
        out = {}
        for s in sequences:
            room = s.request.sampling.max_tokens - len(s.tokens) - 1
            out[s] = list(self.guess(s.request.seed, len(s.tokens))[: min(self.length, room)])
        return {s: draft for s, draft in out.items() if draft}


def test_a_perfect_draft_is_accepted_wholly(model: PreTrainedModel) -> None:
    requests = [replace(r, sampling=Sampling(1.0, 21)) for r in plain_groups(random.Random(1))]
    plain, ours = engine_of(model, False), engine_of(model, True)
    expected = serve(plain, requests)
    known = {r.seed: c.tokens for r, c in zip(requests, expected, strict=True)}
    assert ours.speculation is not None
    ours.speculation.drafts = Planted(4, lambda seed, done: known[seed][done : done + 4])
    equal(expected, serve(ours, requests))
    stats = ours.stats()
    # The first token has no draft; after it, four steps of a token and a draft of four make the other twenty.
    assert stats.drafted_tokens == stats.accepted_tokens == 4 * 4 * len(requests)


def test_a_wrong_draft_costs_nothing_but_time(model: PreTrainedModel) -> None:
    requests = plain_groups(random.Random(1))
    plain, ours = engine_of(model, False), engine_of(model, True)
    expected = serve(plain, requests)
    known = {r.seed: c.tokens for r, c in zip(requests, expected, strict=True)}

    def wrong(seed: int, done: int) -> list[int]:
        right = known[seed][done : done + 4]
        return [(token + 1) % WORDS for token in right]

    assert ours.speculation is not None
    ours.speculation.drafts = Planted(4, wrong)
    equal(expected, serve(ours, requests))
    assert ours.stats().drafted_tokens > 0
    assert ours.stats().accepted_tokens == 0
    turns = [replace(r, ids=r.ids + c.tokens + (5,)) for r, c in zip(requests, expected, strict=True)]
    equal(serve(plain, turns), serve(ours, turns))  # blocks that held wrong drafts are found by the next turn
    assert ours.scheduler.saved_tokens == plain.scheduler.saved_tokens > 0
    assert empty(ours)


def test_after_an_update_in_flight_every_token_agrees_with_the_weights_of_its_version() -> None:
    model = make("llama")
    engine = engine_of(model, True)
    rng = random.Random(0)
    requests = [replace(r, sampling=Sampling(0.3, 40)) for i in range(3) for r in group(rng, i)]
    serve(engine, requests)
    before = engine.stats()
    found, weights = sampled(engine, model, requests, since=before.sampled_tokens)
    assert engine.stats().accepted_tokens > before.accepted_tokens
    for version, state in weights.items():
        model.load_state_dict(state)
        for request, completion in zip(requests, found, strict=True):
            expected = full_forward(model, request.ids, completion.tokens, 0.3).tolist()
            for i, v in enumerate(completion.versions):
                assert v != version or abs(expected[i] - completion.logprobs[i]) < 2e-4
    assert sum(len(set(c.versions)) > 1 for c in found) >= 6, "most replies span an update"
    assert empty(engine)


def test_a_cancelled_request_leaves_nothing_and_changes_no_other(model: PreTrainedModel) -> None:
    requests = plain_groups(random.Random(2))
    ours = engine_of(model, True)
    expected = serve(engine_of(model, False), requests)
    begun = Hold(ours, lambda: ours.stats().accepted_tokens >= 5)

    async def play() -> list[Any]:
        tasks = [asyncio.create_task(ours.generate(r)) for r in requests]
        await begun.reached()
        for request in requests[::2]:
            ours.cancel(request.key)
        begun.release()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(asyncio.wait_for(play(), timeout=60))
    assert any(isinstance(c, asyncio.CancelledError) for c in found[::2])
    equal(expected[1::2], found[1::2])
    assert empty(ours)


def test_five_hundred_random_requests_with_drafts_end_with_an_empty_cache() -> None:
    speculation = Speculation("on", 3)
    weather(500, speculation)
    assert speculation.accepted > 50, "this test should press"


# -- the drafts -----------------------------------------------------------------------------------------------------


def test_earlier_replies_are_kept_up_to_a_limit_and_the_oldest_prompts_go_first(model: PreTrainedModel) -> None:
    engine = engine_of(model, True)
    assert engine.speculation is not None
    drafts = engine.speculation.drafts = Drafts(4, kept_tokens=100)
    rng = random.Random(0)
    for number in range(20):
        serve(engine, [replace(r, sampling=Sampling(1.0, 10)) for r in group(rng, number, 3)])
        assert drafts.kept == sum(len(r) for replies in drafts._replies.values() for r in replies) <= 100
    assert len(drafts._replies) == 3
    again = group(rng, 99, 1)
    for seed in range(2 * drafting.REPLIES):
        serve(engine, [replace(r, seed=seed, sampling=Sampling(1.0, 4)) for r in again])
    assert max(map(len, drafts._replies.values())) == drafting.REPLIES


def test_kept_replies_survive_a_checkpoint(model: PreTrainedModel) -> None:
    engine = engine_of(model, True)
    assert engine.speculation is not None
    serve(engine, plain_groups(random.Random(0)))
    before = engine.speculation
    restored = Speculation("on", 4)
    restored.load_state_dict(before.state_dict())
    assert restored.drafts._replies == before.drafts._replies
    assert list(restored.drafts._replies) == list(before.drafts._replies)
    assert restored.drafts.kept == before.drafts.kept > 0
    assert restored.rate == before.rate != 1


def test_the_only_legal_token_is_a_draft_without_any_text(model: PreTrainedModel) -> None:
    """All legal replies begin with the same ten tokens, so two steps and the last choice are enough."""
    beginning = tuple(range(10, 20))
    legal = ((*beginning, 30, 1), (*beginning, 31, 1))
    engine = engine_of(model, True, tokens=8)
    request = Request((0,), (5, 6, 7), 3, Sampling(1.0, 12, STOP), legal=legal)
    steps = engine.runner.advance
    calls = []
    engine.runner.advance = lambda *a: calls.append(1) or steps(*a)  # type: ignore[method-assign, func-returns-value]
    assert serve(engine, [request])[0].tokens in legal
    assert engine.stats().accepted_tokens == engine.stats().drafted_tokens == 8
    assert len(calls) <= 4


# -- when drafts are used -------------------------------------------------------------------------------------------


def test_auto_uses_no_drafts_in_large_batches_or_where_they_are_wrong(
    model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speculating, "RETRY", 40)

    def run(requests: list[Request], right: bool) -> Speculation:
        known = {r.seed: c.tokens for r, c in zip(requests, serve(engine_of(model, False), requests), strict=True)}
        engine = engine_of(model, False)
        engine.speculation = Speculation("auto", 4)
        off = 0 if right else 1
        engine.speculation.drafts = Planted(4, lambda seed, at: [(t + off) % WORDS for t in known[seed][at : at + 4]])
        serve(engine, requests)
        return engine.speculation

    long = [replace(r, sampling=Sampling(1.0, 150)) for r in group(random.Random(0), 0, 4)]
    good, bad = run(long, True), run(long, False)
    assert good.accepted == good.drafted > 4 * 110
    # Eight tokens count as accepted in the beginning. When 36 were wrong, 8 / 44 is less than what pays. A step has 16.
    assert bad.accepted == 0
    assert bad.drafted / (4 * 4) == 4 * 3, "three steps in the beginning, and three after each 40 steps without drafts"
    crowd = [replace(long[0], key=(i,), seed=i, sampling=Sampling(1.0, 3)) for i in range(AUTO_ROWS // 5 + 1)]
    assert run(crowd, True).drafted == 0
    assert run(crowd[:-1], True).drafted > 0

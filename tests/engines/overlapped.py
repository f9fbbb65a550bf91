"""Checks of an engine whose GPU samples while the host works. Steps are taken by hand, so that requests join, leave and
are cancelled, and weights change, while tokens are being sampled."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from families import WORDS, make
from helpers import close_to, full_forward, random_adapter, serve, words
from test_inflight import move

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.errors import EngineError
from interplay.types import Completion

Runner = Callable[..., Any]  # (model, blocks): the runner of the engine


class Numbers:
    """The part of a tokenizer that stop strings need: every token is its number in brackets."""

    def decode(self, tokens: list[int], **options: Any) -> str:
        return "".join(f"[{t}]" for t in tokens)


def engine_of(model: Any, runner: Runner | None, blocks: int = 40, **options: Any) -> LocalEngine:
    numbers: Any = Numbers()
    engine = LocalEngine(model, 16 * blocks, 16, prefill_tokens=40, tokenizer=numbers, **options)
    if runner is not None:
        engine.runner = runner(model, blocks + 1)
    for i, name in enumerate(("a", "b")):
        engine.load(name, random_adapter(model, 4, i), 0)
    return engine


class Steps:
    """Takes an engine's steps on the test's own thread."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine, self._loop = engine, asyncio.new_event_loop()

    def send(self, request: Request) -> asyncio.Future[Completion]:
        future: asyncio.Future[Completion] = self._loop.create_future()
        self.engine._arrived.append((request, future))
        return future

    def step(self) -> None:
        self.engine.take()
        for answer in self.engine.step():
            answer()

    def to_the_end(self) -> None:
        while self.engine.busy:
            self.step()

    @property
    def sampling(self) -> bool:
        return self.engine._computing is not None

    def close(self) -> None:
        self.engine.close()
        self._loop.close()


def mixed(rng: random.Random, count: int) -> list[Request]:
    """Requests of every kind that is sampled without drafts."""
    shared, out = words(rng, 20), []
    for i in range(count):
        ids = shared[: rng.choice((3, 16, 20))] + words(rng, rng.choice((0, 1, 30)))
        who = rng.choice((None, "a", "b"))
        sampling = Sampling(rng.choice((0.0, 0.8, 1.0)), rng.randint(1, 14), tuple(range(1, rng.choice((2, 8)))))
        more: dict[str, Any] = {}
        if i % 6 == 1:
            a, b = rng.sample(range(2, WORDS), 2)
            sampling = Sampling(0.8, 14, stop_strings=(f"[{a}", f"{b}]"))  # at least a tenth of all tokens ends it
        elif i % 6 == 3:
            sampling, more["legal"] = Sampling(1.0, 14, (1,)), ((7, 8, 9, 10, 1), (7, 8, 1), (9, 1))
        elif i % 12 == 5:
            sampling, more["forced"] = Sampling(), words(rng, 4)
        elif i % 12 == 11:
            sampling = Sampling(1.0, 4, top_k=5)
        out.append(Request((i,), ids, 1000 + i, sampling, who, **more))
    return out


def same(found: Completion, expected: Completion) -> None:
    assert (found.tokens, found.stop, found.versions) == (expected.tokens, expected.stop, expected.versions)
    torch.testing.assert_close(torch.tensor(found.logprobs), torch.tensor(expected.logprobs), atol=2e-4, rtol=1e-3)


def replies_are_the_same(runner: Runner, count: int, seed: int = 0, layers: int = 1) -> None:
    """Requests join at any step and leave at any step, some because nobody waits any more. The cache is so small that
    their blocks are used again at once."""
    rng = random.Random(seed)
    requests = mixed(rng, count)
    model = make("qwen2", layers=layers)
    plain = engine_of(copy.deepcopy(model), None)
    expected = serve(plain, requests)
    plain.close()
    steps = Steps(engine_of(model, runner, blocks=16, max_running=6))
    sent: list[asyncio.Future[Completion]] = []
    cancelled = 0
    while len(sent) < len(requests) or steps.engine.busy:
        for request in requests[len(sent) : len(sent) + rng.randint(0, 3)]:
            sent.append(steps.send(request))
        open_ = [s for s in steps.engine.scheduler.running if not s.future.done()]
        if steps.sampling and open_ and rng.random() < 0.1:
            rng.choice(open_).future.cancel()
            cancelled += 1
        steps.step()
    assert cancelled
    for future, completion in zip(sent, expected, strict=True):
        if not future.cancelled():
            same(future.result(), completion)
    nothing_is_left(steps)


def replies_are_scored_meanwhile(runner: Runner) -> None:
    """A short reply is scored while another request is sampled. No sequence joins or leaves the sampled ones."""
    model = make("qwen2", layers=1)
    long = Request((0,), (5, 6, 7), 1, Sampling(1.0, 14))
    short = [Request((i,), (8, 9, i), 0, Sampling(), forced=(4, i)) for i in range(1, 4)]
    plain = engine_of(copy.deepcopy(model), None)
    expected = serve(plain, [long, *short])
    plain.close()
    steps = Steps(engine_of(model, runner))
    sent = [steps.send(long)]
    for request in short:
        steps.step()
        assert steps.sampling
        sent.append(steps.send(request))
    steps.to_the_end()
    for future, completion in zip(sent, expected, strict=True):
        same(future.result(), completion)
    nothing_is_left(steps)


def nothing_is_left(steps: Steps) -> None:
    engine = steps.engine
    engine.flush()
    assert engine.scheduler.cache.free == engine.scheduler.cache.total
    assert not steps.sampling
    steps.close()


def tokens_have_the_version_they_were_started_with(runner: Runner, keep_cache: bool) -> None:
    """Tokens that are being sampled when the weights change are kept, with the version of the old weights. Every
    log-prob is the one of that version's weights; with a kept cache only those of the first version are compared."""
    rng = random.Random(1)
    model = make("qwen2", layers=1)
    weights = [copy.deepcopy(model.state_dict())]
    steps = Steps(engine_of(model, runner, keep_cache=keep_cache))
    engine = steps.engine
    requests = [Request((i,), words(rng, 5 + 9 * i), i, Sampling(1.0, 9 + 5 * i)) for i in range(3)]
    sent = [steps.send(r) for r in requests]
    for version in (1, 2):
        while not steps.sampling:
            steps.step()
        known = {s: len(s.tokens) for s in engine.scheduler.running if s.ready}
        assert known
        with engine.latch.writing():
            move(model, version)
            engine.update(version)
        weights.append(copy.deepcopy(model.state_dict()))
        assert not steps.sampling
        for future in sent:
            assert not future.done(), "only a step delivers answers"
        old = [s for s in known if len(s.tokens) > known[s]]
        assert old and all(s.versions[known[s] :].count(version - 1) == len(s.tokens) - known[s] for s in old)
        steps.step()
    steps.to_the_end()
    plain = make("qwen2", layers=1)
    for request, future in zip(requests, sent, strict=True):
        found = future.result()
        assert len(found.tokens) == request.sampling.max_tokens
        assert list(found.versions) == sorted(found.versions)
        for version, state in enumerate(weights):
            plain.load_state_dict(state)
            own = [i for i, v in enumerate(found.versions) if v == version]
            if own and not (keep_cache and version):
                expected = full_forward(plain, request.ids, found.tokens)
                close_to([found.logprobs[i] for i in own], expected[own])
    nothing_is_left(steps)


def replies_that_end_during_an_update_are_delivered(runner: Runner) -> None:
    steps = Steps(engine_of(make("qwen2", layers=1), runner))
    engine = steps.engine
    future = steps.send(Request((0,), (5, 6, 7), 1, Sampling(1.0, 1)))
    steps.step()
    assert steps.sampling and not future.done()
    engine.update(1)
    assert not future.done() and not engine.scheduler.running and engine.busy
    steps.step()
    assert future.result().versions == (0,)
    nothing_is_left(steps)


def a_lone_request_waits_for_nothing_else(runner: Runner, chunk: int) -> None:
    """A step waits for the tokens as soon as it has started all prompts there are."""
    steps = Steps(engine_of(make("qwen2", layers=1), runner))
    future = steps.send(Request((0,), (5, 6, 7), 1, Sampling(1.0, 2 * chunk)))
    for _ in range(2):
        steps.step()
        assert steps.sampling and not future.done()
    steps.step()
    assert future.done() and not steps.sampling
    nothing_is_left(steps)


def failures_and_closing_end_every_request(runner: Runner) -> None:
    """A step fails while tokens are being sampled: the tokens are discarded, and the engine serves again. Closing waits
    for the tokens."""
    steps = Steps(engine_of(make("qwen2", layers=1), runner))
    engine, request = steps.engine, Request((0,), (5, 6, 7), 1, Sampling(1.0, 6))
    lost = steps.send(request)
    steps.step()
    assert steps.sampling
    prefill, broken = engine.runner.prefill, RuntimeError("broken")

    def fails(*given: Any) -> Any:
        raise broken

    engine.runner.prefill = fails  # type: ignore[method-assign]
    other = steps.send(Request((1,), (8, 9), 2, Sampling(1.0, 6)))
    engine.take()
    with pytest.raises(RuntimeError):
        engine.step()
    engine.fail(broken)
    for future in (lost, other):
        assert isinstance(future.exception(), EngineError)
    assert not steps.sampling and not engine.busy
    engine.runner.prefill = prefill  # type: ignore[method-assign]
    again = steps.send(request)
    steps.to_the_end()
    plain = engine_of(make("qwen2", layers=1), None)
    same(again.result(), serve(plain, [request])[0])
    plain.close()

    short, long = (steps.send(Request((i,), (5, 6, 7), i, Sampling(1.0, n))) for i, n in ((0, 1), (1, 30)))
    steps.step()
    assert steps.sampling
    steps.close()
    assert len(short.result().tokens) == 1, "it was finished when the engine was closed"
    assert isinstance(long.exception(), EngineError)

"""The in-process engine compared with plain transformers: same log-probs, same greedy text, in any batch."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import Hold
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen2Config

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.errors import EngineError
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.models.tiny import VOCABULARY
from interplay.types import Completion, MediaSpan, Stop

SHAPES: dict[str, Callable[[], Any]] = {
    "qwen2": lambda: Qwen2Config(num_key_value_heads=2, tie_word_embeddings=False, **COMMON),
    "llama-gqa": lambda: LlamaConfig(num_key_value_heads=1, head_dim=16, tie_word_embeddings=False, **COMMON),
}
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}


class Pair:
    """A model as Interplay loads it, and the same folder as transformers loads it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.loaded: Loaded = load(folder, "cpu", torch.float32, seed=0)
        self.plain: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()

    def engine(self, cache_tokens: int = 8192, block_size: int = 4, **options: Any) -> LocalEngine:
        return LocalEngine(self.loaded.model, cache_tokens, block_size, **options)

    def check(self, request: Request, completion: Completion) -> None:
        """Promise 2: each log-prob is that of a full forward pass over prompt and reply."""
        assert len(completion.tokens) == len(completion.logprobs) > 0
        expected = full_forward(self.plain, request.ids, completion.tokens, request.sampling.temperature)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=0)


@torch.no_grad()
def full_forward(
    model: PreTrainedModel, prompt: tuple[int, ...], action: tuple[int, ...], temperature: float
) -> torch.Tensor:
    logits = model(torch.tensor([[*prompt, *action]])).logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1)[torch.arange(len(action)), torch.tensor(action)]


@pytest.fixture(scope="session")
def pairs(tiny: Loaded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    out = {"tiny": Pair(locate("tiny", 0))}
    for name, make_config in SHAPES.items():
        folder = tmp_path_factory.mktemp(name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = AutoModelForCausalLM.from_config(make_config())
            for parameter in model.parameters():  # biases and norms too, so that leaving one out is seen
                torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
        model.save_pretrained(folder)
        tiny.tokenizer.save_pretrained(folder)
        out[name] = Pair(str(folder))
    return out


@pytest.fixture(params=["tiny", *SHAPES])
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Pair:
    return pairs[request.param]


@pytest.fixture
def small(pairs: dict[str, Pair]) -> Pair:
    return pairs["llama-gqa"]


def ids(rng: random.Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(6, VOCABULARY) for _ in range(length))


def ask(key: int, prompt: tuple[int, ...], max_tokens: int = 8, temperature: float = 1.0, seed: int = 0) -> Request:
    return Request((key,), prompt, seed or 1000 + key, Sampling(temperature, max_tokens))


def serve(engine: LocalEngine, requests: list[Request]) -> list[Completion]:
    async def all_at_once() -> list[Completion]:
        return await asyncio.gather(*(engine.generate(r) for r in requests))

    return asyncio.run(asyncio.wait_for(all_at_once(), timeout=120))


def empty(engine: LocalEngine) -> bool:
    """After a flush, every block is free again and has no reference."""
    engine.update(engine.version + 1)
    cache = engine.scheduler.cache
    return cache.free == cache.total and not any(cache._refs)


# -- promise 2: the log-probs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_promise_2_logprobs_of_a_mixed_batch_equal_a_full_forward_pass(pair: Pair, temperature: float) -> None:
    rng = random.Random(0)
    requests = [ask(i, ids(rng, rng.randint(1, 50)), rng.randint(1, 12), temperature) for i in range(12)]
    requests.append(ask(99, ids(rng, 8), 5, temperature))  # a prompt that fills its blocks exactly
    engine = pair.engine(prefill_tokens=100)  # several prefill passes
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        pair.check(request, completion)
        assert len(completion.tokens) == request.sampling.max_tokens
    assert empty(engine)


@pytest.mark.parametrize("length", [1, 7, 8, 9])
def test_promise_2_holds_for_many_samples_of_one_prompt_computed_once(pair: Pair, length: int) -> None:
    prompt = ids(random.Random(length), length)
    requests = [ask(i, prompt, 3 + i) for i in range(5)]
    engine = pair.engine()
    completions = serve(engine, requests)
    for request, completion in zip(requests, completions, strict=True):
        pair.check(request, completion)
    assert engine.scheduler.saved_tokens == 4 * length
    assert len({c.tokens[:3] for c in completions}) == 5
    assert empty(engine)


def test_promise_2_holds_for_a_prompt_that_extends_an_earlier_conversation(pair: Pair) -> None:
    rng = random.Random(3)
    engine = pair.engine()
    first = [ask(i, ids(rng, 10 + i), 9) for i in range(3)]
    second = []
    for i, (request, completion) in enumerate(zip(first, serve(engine, first), strict=True)):
        second.append(ask(10 + i, request.ids + completion.tokens + ids(rng, 3), 6))
    saved = engine.scheduler.saved_tokens
    for request, completion in zip(second, serve(engine, second), strict=True):
        pair.check(request, completion)
    reused = engine.scheduler.saved_tokens - saved
    assert reused == sum((len(r.ids) + 8) // 4 * 4 for r in first)  # all full blocks but the token never computed
    assert empty(engine)


def test_promise_2_holds_when_requests_must_queue_for_memory(pair: Pair) -> None:
    rng = random.Random(5)
    beginning = ids(rng, 6)
    requests = [ask(i, beginning + ids(rng, rng.randint(1, 12)), rng.randint(1, 10)) for i in range(16)]
    requests += [ask(100 + i, requests[i].ids, 6) for i in range(6)]  # the same prompts again, later in the queue
    engine = pair.engine(cache_tokens=80)
    queued: list[int] = []
    decode = engine.runner.decode

    def watch(sequences: Any) -> torch.Tensor:
        queued.append(engine.scheduler.queued)
        return decode(sequences)

    engine.runner.decode = watch  # type: ignore[method-assign]
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        pair.check(request, completion)
    assert max(queued) >= 5, "this test should press"
    assert empty(engine)


def test_promise_2_holds_after_the_weights_changed_under_a_warm_cache(make_tiny: Callable[..., Loaded]) -> None:
    model = make_tiny(3).model
    engine = LocalEngine(model, 1024, 4)
    prompt = ids(random.Random(1), 9)
    before = serve(engine, [ask(0, prompt)])[0]
    saved = engine.scheduler.saved_tokens
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.2)
    engine.update(1)
    after = serve(engine, [ask(0, prompt)])[0]
    expected = full_forward(model, prompt, after.tokens, 1.0)
    torch.testing.assert_close(torch.tensor(after.logprobs), expected, atol=1e-4, rtol=0)
    assert engine.scheduler.saved_tokens == saved, "nothing computed with the old weights is reused"
    assert ({*before.versions}, {*after.versions}) == ({0}, {1})


def test_greedy_decoding_equals_transformers_generate(pair: Pair) -> None:
    rng = random.Random(7)
    requests = [ask(i, ids(rng, length), 16, temperature=0.0) for i, length in enumerate((1, 5, 16, 33))]
    for request, completion in zip(requests, serve(pair.engine(), requests), strict=True):
        with torch.no_grad():
            theirs = pair.plain.generate(
                torch.tensor([request.ids]), do_sample=False, max_new_tokens=16, min_new_tokens=16, eos_token_id=None
            )
        assert completion.tokens == tuple(theirs[0, len(request.ids) :].tolist())


# -- determinism ----------------------------------------------------------------------------------------------------


def test_a_request_gives_the_same_tokens_whatever_else_is_in_the_batch(pair: Pair) -> None:
    rng = random.Random(11)
    request = ask(50, ids(rng, 13), 12)
    alone = serve(pair.engine(), [request])[0]
    others = [ask(i, ids(rng, rng.randint(1, 40)), rng.randint(1, 15)) for i in range(8)]
    twins = [replace(request, key=(60 + i,), seed=i + 1) for i in range(3)]
    for batch in ([*others, request, *twins], [*twins, request], [request, *reversed(others)]):
        beside = serve(pair.engine(), batch)[batch.index(request)]
        assert beside.tokens == alone.tokens
        assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    crowded = serve(pair.engine(cache_tokens=120), [*others, request])[-1]
    assert crowded.tokens == alone.tokens
    engine = pair.engine()
    assert serve(engine, [request])[0].tokens == serve(engine, [request])[0].tokens, "a warm cache changes nothing"


def test_different_seeds_give_different_tokens_and_the_key_only_orders(small: Pair) -> None:
    prompt = ids(random.Random(2), 6)
    requests = [ask(i, prompt, 6, seed=100 + i) for i in range(12)]
    completions = serve(small.engine(), requests)
    assert len({c.tokens for c in completions}) == 12
    renamed = [replace(r, key=(-i,)) for i, r in enumerate(requests)]
    assert [c.tokens for c in serve(small.engine(), renamed)] == [c.tokens for c in completions]


# -- how a completion ends ------------------------------------------------------------------------------------------


def test_a_stop_token_ends_the_reply_and_is_part_of_it(small: Pair) -> None:
    request = ask(0, ids(random.Random(4), 7), 10)
    whole = serve(small.engine(), [request])[0]
    assert whole.stop is Stop.LENGTH
    assert len(whole.tokens) == 10
    for end in (whole.tokens[4], whole.tokens[9], whole.tokens[0]):
        stopped = serve(small.engine(), [replace(request, sampling=Sampling(1.0, 10, (3, end)))])[0]
        cut = whole.tokens.index(end) + 1
        assert stopped.tokens == whole.tokens[:cut]
        assert stopped.stop is Stop.END  # also when it is the last token allowed


def test_one_token_is_a_reply_too(small: Pair) -> None:
    request = ask(0, ids(random.Random(4), 7), 1)
    completion = serve(small.engine(), [request])[0]
    assert len(completion.tokens) == 1
    assert completion.stop is Stop.LENGTH
    small.check(request, completion)


def test_the_version_of_the_weights_is_stamped_on_every_token(small: Pair) -> None:
    engine = small.engine()
    request = ask(0, (7, 8, 9), 3)
    assert serve(engine, [request])[0].versions == (0, 0, 0)
    engine.update(41)
    assert serve(engine, [request])[0].versions == (41, 41, 41)


# -- what cannot be served, and what fails --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "sentence"),
    [
        ((), 4, "no tokens; expected at least one"),
        ((7, 8), 0, "max_tokens is 0; expected at least 1"),
        ((7, VOCABULARY), 4, f"vocabulary of {VOCABULARY}"),
        ((7, -1), 4, f"vocabulary of {VOCABULARY}"),
        ((7,) * 250, 7, r"\(250\) plus max_tokens \(7\) is 257 tokens, but the model takes at most 256"),
        ((7,) * 30, 40, "70 tokens can never fit into the engine's cache of 64 tokens"),
        ((7,) * 30, 34, "64 tokens can never fit"),  # the prompt's half-filled last block is there twice
    ],
)
def test_an_impossible_request_is_refused_with_the_limit_and_leaves_the_engine_healthy(
    small: Pair, prompt: tuple[int, ...], max_tokens: int, sentence: str
) -> None:
    engine = small.engine(cache_tokens=64)
    with pytest.raises(EngineError, match=sentence):
        serve(engine, [ask(0, prompt, max_tokens)])
    request = ask(1, (7, 8, 9), 4)
    small.check(request, serve(engine, [request])[0])
    assert empty(engine)


def test_a_prompt_with_a_picture_is_refused_by_an_engine_that_reads_text_alone(small: Pair) -> None:
    engine = small.engine()
    request = ask(0, (7, 8, 9), 4)
    assert not engine.capabilities.media
    with pytest.raises(EngineError, match="reads only text; expected a prompt without pictures"):
        serve(engine, [replace(request, media=(MediaSpan(1, 1, "ca7"),))])
    small.check(request, serve(engine, [request])[0])
    assert empty(engine)


@pytest.mark.parametrize(("length", "max_tokens"), [(30, 30), (32, 32), (60, 4), (1, 56)])
def test_a_request_as_large_as_the_cache_is_served(small: Pair, length: int, max_tokens: int) -> None:
    engine = small.engine(cache_tokens=64)
    rng = random.Random(0)
    requests = [ask(0, ids(rng, 20), 5), ask(1, ids(rng, length), max_tokens), ask(2, ids(rng, 3), 5)]
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        small.check(request, completion)
    assert empty(engine)


def test_a_request_as_long_as_the_models_context_is_served(small: Pair) -> None:
    request = ask(0, ids(random.Random(0), 250), 6)
    small.check(request, serve(small.engine(), [request])[0])


def test_one_impossible_request_does_not_disturb_the_others(small: Pair) -> None:
    engine = small.engine()
    good = [ask(i, ids(random.Random(i), 5 + i)) for i in range(3)]

    async def mixed() -> list[Any]:
        return await asyncio.gather(*(engine.generate(r) for r in [*good, ask(9, ())]), return_exceptions=True)

    *served, refused = asyncio.run(mixed())
    assert isinstance(refused, EngineError)
    for request, completion in zip(good, served, strict=True):
        small.check(request, completion)


def test_a_cancelled_request_gives_its_blocks_back(small: Pair) -> None:
    engine = small.engine(cache_tokens=240)
    rng = random.Random(0)
    running, other, waiting = ask(0, ids(rng, 10), 150), ask(1, ids(rng, 5), 30), ask(2, ids(rng, 9), 100)
    begun = Hold(engine, lambda: engine.stats().sampled_tokens >= 8)

    async def play() -> Completion:
        tasks = [asyncio.create_task(engine.generate(r)) for r in (running, other, waiting)]
        await begun.reached()
        assert len(engine.scheduler.running) == 2
        assert engine.scheduler.queued == 1
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.sleep(0)
        begun.release()
        completion = await tasks[1]
        for task in (tasks[0], tasks[2]):
            with pytest.raises(asyncio.CancelledError):
                await task
        return completion

    small.check(other, asyncio.run(asyncio.wait_for(play(), timeout=120)))
    assert not engine.scheduler.running
    assert not engine.scheduler.queued
    assert empty(engine)
    again = ask(3, ids(rng, 20), 100)
    small.check(again, serve(engine, [again])[0])


def test_a_rollout_cancelled_whole_leaves_an_engine_that_works(small: Pair) -> None:
    engine = small.engine()
    begun = Hold(engine, lambda: engine.stats().sampled_tokens >= 5)

    async def interrupted() -> None:
        tasks = [asyncio.create_task(engine.generate(ask(i, (7 + i, 8), 200))) for i in range(3)]
        await begun.reached()
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        begun.release()

    asyncio.run(interrupted())  # the loop ends with the engine's own task in the middle of a step
    request = ask(5, (9, 10, 11))
    small.check(request, serve(engine, [request])[0])
    assert empty(engine)


@pytest.mark.parametrize("part", ["prefill", "decode", "copy_blocks", "_draw"])
def test_promise_7_a_failure_of_the_model_becomes_an_engine_error_and_the_engine_goes_on(
    small: Pair, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    engine = small.engine(cache_tokens=120)
    requests = [ask(i, ids(random.Random(i), 9), 12) for i in range(8)]  # more than fit at once

    def broken(*args: Any) -> Any:
        raise RuntimeError("out of something")

    async def gather() -> list[Any]:
        return await asyncio.gather(*(engine.generate(r) for r in requests), return_exceptions=True)

    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, part, broken)
        failures = asyncio.run(asyncio.wait_for(gather(), timeout=120))
    for failure in failures:
        assert isinstance(failure, EngineError)
        assert "RuntimeError: out of something" in str(failure)
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        small.check(request, completion)
    assert empty(engine)


def test_an_update_while_requests_are_in_flight_marks_the_tokens_that_follow(small: Pair) -> None:
    """The weights stayed the same, so the reply does too; tokens after the update have the new version."""
    engine = small.engine()
    request = ask(0, (7, 8, 9), 100)
    holds = [Hold(engine, lambda: engine.stats().sampled_tokens >= 2), Hold(engine, lambda: True)]

    async def play() -> Completion:
        task = asyncio.create_task(engine.generate(request))
        for held in reversed(holds):  # while it waits, and while it runs
            await held.reached()
            engine.update(engine.version + 1)
            held.release()
        return await task

    completion = asyncio.run(asyncio.wait_for(play(), timeout=120))
    assert list(completion.versions) == sorted(completion.versions)
    assert completion.versions[0] < completion.versions[-1] == engine.version == 2
    small.check(request, completion)


def test_a_request_that_arrives_in_the_middle_of_admission_is_neither_lost_nor_harmful(small: Pair) -> None:
    """Steps run on the engine's thread while the event loop accepts requests: the queue must support both at once."""
    engine = small.engine()
    sorting, arrived = threading.Event(), threading.Event()

    @dataclass(frozen=True)
    class Slow:
        number: int

        def __lt__(self, other: Slow) -> bool:
            sorting.set()
            arrived.wait(timeout=60)
            return self.number < other.number

    requests = [replace(ask(i, ids(random.Random(i), 6)), key=(Slow(i),)) for i in range(4)]

    async def play() -> list[Completion]:
        tasks = [asyncio.create_task(engine.generate(r)) for r in requests[:2]]
        await asyncio.to_thread(sorting.wait, 60)
        tasks += [asyncio.create_task(engine.generate(r)) for r in requests[2:]]
        await asyncio.sleep(0)
        assert engine.queued == 4
        arrived.set()
        return await asyncio.gather(*tasks)

    for request, completion in zip(requests, asyncio.run(asyncio.wait_for(play(), timeout=240)), strict=True):
        small.check(request, completion)
    assert empty(engine)


def test_the_engine_samples_from_the_very_tensors_it_was_given(tiny: Loaded) -> None:
    """The weights are not copied: every parameter of the engine is at the same address as the learner's."""
    engine = LocalEngine(tiny.model, 256, 4)
    theirs = {p.data_ptr() for p in tiny.model.parameters()}
    ours = [*engine.runner.decoder.parameters(), *engine.runner.head.parameters()]
    assert {p.data_ptr() for p in ours} == theirs
    held = [t for t in vars(engine.runner).values() if isinstance(t, torch.Tensor)]
    assert held == [], "the runner holds no tensors but its cache"


def test_folders_made_here_differ_in_what_they_test(pairs: dict[str, Pair]) -> None:
    """Guards this file: the models really have grouped heads, an odd head size and biases."""
    qwen, llama = pairs["qwen2"].loaded.model, pairs["llama-gqa"].loaded.model
    assert qwen.config.num_key_value_heads < qwen.config.num_attention_heads
    assert llama.config.head_dim * llama.config.num_attention_heads != llama.config.hidden_size
    assert qwen.model.layers[0].self_attn.q_proj.bias.abs().max() > 0
    assert all((Path(p.folder) / "config.json").is_file() for p in pairs.values())


def test_a_first_wave_of_prompts_that_begin_alike_computes_the_beginning_once(small: Pair) -> None:
    """Episodes that start together also share a system prompt; the answers are the same as if each were alone."""
    rng = random.Random(5)
    system = ids(rng, 24)
    requests = [ask(i, system + ids(rng, 5), 4) for i in range(6)]
    engine = small.engine()
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        small.check(request, completion)
    assert engine.scheduler.saved_tokens == 5 * 24
    assert empty(engine)

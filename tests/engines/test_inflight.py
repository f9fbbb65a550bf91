"""Weights change while requests run: every token agrees with the weights of its own version."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch
from families import make
from helpers import Hold, ask, full_forward, random_adapter, words

from interplay.engines.local import LocalEngine
from interplay.types import Completion

UPDATES = 4


@torch.no_grad()
def move(model: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def sampled(
    engine: LocalEngine, model: Any, requests: list[Any], since: int = 0
) -> tuple[list[Completion], dict[int, Any]]:
    """Sends all requests at once, and writes the weights `UPDATES` times meanwhile; returns the weights of every
    version. The engine has sampled `since` tokens before. It waits for a writer that is late on a busy machine."""
    weights = {0: {k: v.clone() for k, v in model.state_dict().items()}}
    total = sum(r.sampling.max_tokens for r in requests)

    def share() -> float:
        """How far the engine is; a new version is due at each whole number."""
        return (engine.stats().sampled_tokens - since) * (UPDATES + 2) / total

    Hold(engine, lambda: len(weights) <= UPDATES and share() >= len(weights) + 0.5)

    async def write() -> None:
        for version in range(1, UPDATES + 1):
            while share() < version:
                await asyncio.sleep(0.001)

            def update(version: int = version) -> None:
                with engine.latch.writing():
                    move(model, version)
                    engine.update(version)
                    weights[version] = {k: v.clone() for k, v in model.state_dict().items()}

            await asyncio.to_thread(update)

    async def both() -> list[Completion]:
        writer = asyncio.create_task(write())
        found = await asyncio.gather(*(engine.generate(r) for r in requests))
        await writer
        return found

    return asyncio.run(asyncio.wait_for(both(), 240)), weights


@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral"])
def test_recomputed_replies_agree_with_each_tokens_own_version(family: str) -> None:
    """To 1e-4 in fp32, compared with a full forward pass with the version that the token has."""
    model, rng = make(family), random.Random(0)
    engine = LocalEngine(model, cache_tokens=4096, block_size=8)
    prompts = [words(rng, 5 + 3 * (i % 4)) for i in range(6)]
    requests = [ask(i, prompts[i // 2], max_tokens=48) for i in range(12)]  # two requests share each prompt
    found, weights = sampled(engine, model, requests)
    crossed = 0
    for version, state in weights.items():
        model.load_state_dict(state)
        for request, completion in zip(requests, found, strict=True):
            expected = full_forward(model, request.ids, completion.tokens)
            for i, v in enumerate(completion.versions):
                if v == version:
                    assert abs(expected[i].item() - completion.logprobs[i]) < 1e-4
    for completion in found:
        assert list(completion.versions) == sorted(completion.versions)
        crossed += len(set(completion.versions)) > 1
    assert crossed >= 6, "most replies span an update"
    engine.flush()
    assert engine.scheduler.cache.free == engine.scheduler.cache.total, "nothing is left in the cache"
    engine.close()


def test_a_kept_cache_continues_what_the_old_weights_computed() -> None:
    """To 1e-4, compared with a reference that keeps its keys and values and continues with the new weights."""
    model, rng = make("llama"), random.Random(1)
    engine = LocalEngine(model, cache_tokens=4096, block_size=8, keep_cache=True)
    requests = [ask(i, words(rng, 9), max_tokens=40) for i in range(4)]
    found, weights = sampled(engine, model, requests)
    assert all(len(set(c.versions)) > 2 for c in found)
    for request, completion in zip(requests, found, strict=True):
        model.load_state_dict(weights[completion.versions[0]])
        model.config._attn_implementation = "sdpa"
        with torch.no_grad():
            step = model(torch.tensor([request.ids]), use_cache=True)
            for i, (token, version) in enumerate(zip(completion.tokens, completion.versions, strict=True)):
                if i and version != completion.versions[i - 1]:
                    model.load_state_dict(weights[version])
                if i:  # the token before is read with the weights that draw this one
                    last = torch.tensor([[completion.tokens[i - 1]]])
                    step = model(last, past_key_values=step.past_key_values, use_cache=True)
                logprob = torch.log_softmax(step.logits[0, -1].float(), -1)[token].item()
                assert abs(logprob - completion.logprobs[i]) < 1e-4
    engine.close()


@pytest.mark.parametrize("keep", [False, True])
def test_blocks_of_two_versions_are_never_found_again(keep: bool) -> None:
    """A request after the update computes its whole prompt, although others with the same prompt are still running."""
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=4096, block_size=4, keep_cache=keep)
    prompt = words(random.Random(2), 24)

    Hold(engine, lambda: engine.version == 0 and engine.stats().sampled_tokens >= 60)

    async def main() -> tuple[Completion, Completion]:
        first = asyncio.create_task(engine.generate(ask(0, prompt, max_tokens=120)))
        while engine.stats().sampled_tokens < 10:
            await asyncio.sleep(0.001)

        def update() -> None:
            with engine.latch.writing():
                move(model, 1)
                engine.update(1)

        await asyncio.to_thread(update)
        saved = engine.stats().cached_tokens
        second = await engine.generate(ask(1, prompt, max_tokens=4))
        if keep:  # otherwise the first one computes the same prompt anew, which may be shared
            assert engine.stats().cached_tokens == saved
        return await first, second

    first, second = asyncio.run(asyncio.wait_for(main(), 120))
    assert set(second.versions) == {1} and set(first.versions) == {0, 1}
    expected = full_forward(model, prompt, second.tokens)
    assert max(abs(a - b) for a, b in zip(second.logprobs, expected.tolist(), strict=True)) < 1e-4
    engine.close()


def test_an_adapters_old_weights_serve_the_requests_that_began_with_them() -> None:
    """Old and new weights are in one batch, each with its own log-probs; the place of the old ones is freed
    afterwards."""
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=4096, block_size=8)
    old, new = random_adapter(model, 4, 1), random_adapter(model, 4, 2)
    prompt = words(random.Random(3), 12)
    engine.load("a", old, 1)
    begun = Hold(engine, lambda: engine.stats().sampled_tokens >= 5)

    async def main() -> tuple[Completion, Completion]:
        first = asyncio.create_task(engine.generate(ask(0, prompt, max_tokens=60, adapter="a")))
        await begun.reached()
        await asyncio.to_thread(engine.load, "a", new, 2)
        begun.release()
        second = await engine.generate(ask(1, prompt, max_tokens=60, adapter="a"))
        return await first, second

    first, second = asyncio.run(asyncio.wait_for(main(), 120))
    assert set(first.versions) == {1} and set(second.versions) == {2}
    engine.load("a", new, 3)  # the next load gives the old place back
    assert len(engine.runner.bank.places) == 1  # type: ignore[attr-defined]
    for completion, adapter in ((first, old), (second, new)):
        engine.load("check", adapter, 9)
        (found,) = asyncio.run(engine.score(prompt, [completion.tokens], "check"))
        assert max(abs(a - b) for a, b in zip(found, completion.logprobs, strict=True)) < 1e-4
    engine.unload("check")
    engine.close()


def test_an_unloaded_adapter_stays_for_the_requests_that_name_it() -> None:
    model = make("llama")
    engine = LocalEngine(model, cache_tokens=4096, block_size=8)
    engine.load("a", random_adapter(model, 4, 1), 5)
    begun = Hold(engine, lambda: engine.stats().sampled_tokens >= 5)

    async def main() -> Completion:
        first = asyncio.create_task(engine.generate(ask(0, words(random.Random(4), 8), max_tokens=60, adapter="a")))
        await begun.reached()
        await asyncio.to_thread(engine.unload, "a")
        begun.release()
        return await first

    assert set(asyncio.run(asyncio.wait_for(main(), 120)).versions) == {5}
    engine.close()

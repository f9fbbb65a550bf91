"""Many adapters on one base: each gives the same replies as alone, and adapters do not influence each other."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, make
from helpers import ask, close_to, empty, full_forward, merged, random_adapter, serve, words

from interplay.engines.engine import Request
from interplay.engines.local import LocalEngine
from interplay.errors import EngineError
from interplay.models.adapter import Adapter
from interplay.models.lora import save_adapter
from interplay.models.stacked import Bank
from interplay.types import Completion

PARTS = {"a": (4, 1, ""), "b": (1, 2, "attn"), "c": (7, 3, "mlp")}  # rank, seed and the layers it touches


def adapters(model: Any) -> dict[str, Adapter]:
    return {name: random_adapter(model, rank, seed, 0.5, part) for name, (rank, seed, part) in PARTS.items()}


def mixed_requests(seed: int = 0) -> list[Request]:
    """Two prompts, one of which is the beginning of the other, for every adapter and for the base."""
    rng = random.Random(seed)
    prompt = words(rng, 19)
    out = []
    for name in (None, *PARTS):
        for ids in (prompt, prompt[:11]):
            out.append(ask(len(out), ids, 4 + len(out) % 3, adapter=name))
    return out


def loaded(model: Any, **options: Any) -> LocalEngine:
    engine = LocalEngine(model, 2048, 4, **options)
    for version, (name, adapter) in enumerate(adapters(model).items()):
        engine.load(name, adapter, 10 + version)
    return engine


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mixed_batch_gives_each_the_logprobs_of_its_merged_weights(family: str) -> None:
    model = make(family)
    engine = loaded(model, prefill_tokens=30)
    plain: dict[str | None, Any] = {None: make(family, "sdpa")}
    for name, adapter in adapters(model).items():
        plain[name] = merged(make(family, "sdpa"), adapter)
    requests = mixed_requests()
    requests += [replace(r, key=(50 + i,), forced=(9, 8, 7)) for i, r in enumerate(requests)]
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        close_to(completion.logprobs, full_forward(plain[request.adapter], request.ids, completion.tokens))
        assert {*completion.versions} == {{None: 0, "a": 10, "b": 11, "c": 12}[request.adapter]}
    different = {tuple(c.logprobs) for r, c in zip(requests, serve(engine, requests), strict=True) if r.forced}
    assert len(different) == 8, "guards this test: every adapter is felt"
    assert empty(engine)


@pytest.mark.parametrize("family", ["qwen3", "gpt2"])
def test_a_mixed_batch_gives_each_the_logprobs_that_peft_gives(family: str, tmp_path: Path) -> None:
    from peft import PeftModel

    model = make(family)
    engine = loaded(model)
    plain: dict[str | None, Any] = {None: make(family, "sdpa")}
    for name, adapter in adapters(model).items():
        save_adapter(adapter, tmp_path / name)
        plain[name] = PeftModel.from_pretrained(make(family, "sdpa"), str(tmp_path / name)).eval()
    requests = mixed_requests()
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        close_to(completion.logprobs, full_forward(plain[request.adapter], request.ids, completion.tokens))


def by_adapter(requests: list[Request], completions: list[Completion]) -> dict[str | None, list[Any]]:
    out: dict[str | None, list[Any]] = {}
    for request, completion in zip(requests, completions, strict=True):
        out.setdefault(request.adapter, []).append((completion.tokens, completion.logprobs))
    return out


@pytest.mark.parametrize("rank", [1, 3, 20])  # as before; larger, behind the others; more than there is room for
def test_replacing_one_adapter_changes_its_own_completions_only(rank: int) -> None:
    model = make("llama")
    engine = loaded(model)
    requests = mixed_requests()
    before = by_adapter(requests, serve(engine, requests))
    new = random_adapter(model, rank, 99)
    engine.load("b", new, 77)
    saved = engine.scheduler.saved_tokens
    after = serve(engine, requests)
    grouped = by_adapter(requests, after)
    for name in (None, "a", "c"):
        for (tokens, logprobs), (was, were) in zip(grouped[name], before[name], strict=True):
            assert tokens == was
            assert logprobs == pytest.approx(were, abs=1e-5)
    plain = merged(make("llama", "sdpa"), new)
    for request, completion in zip(requests, after, strict=True):
        if request.adapter == "b":
            assert {*completion.versions} == {77}
            close_to(completion.logprobs, full_forward(plain, request.ids, completion.tokens))
    # The others found their prompts whole; b's shared with each other only, as in an engine that never had another b.
    fresh = loaded(make("llama"))
    fresh.load("b", new, 77)
    serve(fresh, [r for r in requests if r.adapter == "b"])
    others = sum(len(r.ids) for r in requests if r.adapter != "b")
    assert engine.scheduler.saved_tokens - saved == others + fresh.scheduler.saved_tokens
    assert empty(engine)


def test_a_prompt_is_shared_within_an_adapter_and_never_across() -> None:
    engine = loaded(make("llama"))
    prompt = words(random.Random(1), 12)
    requests = [ask(i, prompt, 3, adapter=name) for i, name in enumerate((None, "a", "b", None, "a", "b", "a"))]
    serve(engine, requests)
    assert engine.scheduler.saved_tokens == 4 * 12
    engine.update(1)
    serve(engine, [ask(9, prompt, 3, adapter="a")])
    assert engine.scheduler.saved_tokens == 4 * 12, "the base changed under it"


def test_what_is_unloaded_gives_its_ranks_back_and_is_not_found_when_it_returns() -> None:
    model = make("llama")
    engine = loaded(model)
    bank = engine.runner.bank  # type: ignore[attr-defined]
    assert bank.capacity == 12
    request = ask(0, words(random.Random(2), 12), 4, adapter="a")
    serve(engine, [request])
    saved = engine.scheduler.saved_tokens
    engine.unload("a")
    with pytest.raises(EngineError, match=r"no adapter 'a' is loaded; known: b, c"):
        serve(engine, [request])
    other = random_adapter(model, 4, 31)
    engine.load("d", other, 1)
    assert bank.capacity == 12, "it fits where the other was"
    engine.load("a", random_adapter(model, 2, 32, part="mlp"), 1)
    assert bank.capacity == 14
    plain = {"a": random_adapter(model, 2, 32, part="mlp"), "d": other, **{n: adapters(model)[n] for n in "bc"}}
    requests = [replace(request, key=(i,), adapter=name) for i, name in enumerate(plain)]
    for asked, completion in zip(requests, serve(engine, requests), strict=True):
        twin = merged(make("llama", "sdpa"), plain[asked.adapter or ""])
        close_to(completion.logprobs, full_forward(twin, asked.ids, completion.tokens))
    assert engine.scheduler.saved_tokens == saved
    for name in plain:
        engine.unload(name)
    base = serve(engine, [replace(request, adapter=None)])[0]
    close_to(base.logprobs, full_forward(make("llama", "sdpa"), request.ids, base.tokens))
    assert empty(engine)


@torch.no_grad()
def test_what_was_in_rank_rows_before_does_not_remain() -> None:
    """An adapter with few layers replaces one with all layers."""
    model = make("llama")
    bank = Bank(model, 4)
    bank.load("a", random_adapter(model, 4, 1))
    bank.unload("a")
    assert not bank.keep(torch.tensor([-1, 0])).any(), "nobody's rows count for nobody"
    bank.load("b", random_adapter(model, 4, 2, part="q_proj"))
    touched = {name for name, layer in bank.layers.items() if bank.pair(layer)[0].any()}  # type: ignore[index]
    assert touched == {n for n in bank.layers if "q_proj" in n}
    assert bank.keep(torch.tensor([-1, 0])).tolist() == [[0.0] * 4, [0.5] * 4]


def test_what_cannot_be_loaded_is_one_sentence_and_changes_nothing() -> None:
    model = make("llama")
    engine = loaded(model)
    request = ask(0, words(random.Random(3), 9), 5, adapter="b")
    before = serve(engine, [request])[0]
    good = random_adapter(model, 3, 1)
    name, (down, up) = next(iter(good.weights.items()))
    wrong = {
        "has weights for 'model.layers.9.q', a layer that this model does not have": {"model.layers.9.q": (down, up)},
        r"of shape \(3, 31\) and \(64, 3\) for 'model.layers.0.self_attn.q_proj'; expected \(3, 32\) and \(64, 3\)": {
            name: (down[:, :-1], up)
        },
        r"of shape \(3, 32\) and \(3, 64\)": {name: (down, up.T)},
        r"of shape \(2, 32\)": {name: (down[:2], up)},
        "layer that this model does not have": {"lm_head": (down, up)},
    }
    for sentence, weights in wrong.items():
        with pytest.raises(EngineError, match=sentence) as caught:
            engine.load("b", replace(good, weights=weights), 50)
        assert "\n" not in str(caught.value)
    with pytest.raises(EngineError, match=r"no adapter 'bb' is loaded; known: a, b, c. Did you mean 'b'"):
        engine.unload("bb")
    with pytest.raises(EngineError, match=r"no adapter 'd' is loaded"):
        serve(engine, [replace(request, adapter="d")])
    with pytest.raises(EngineError, match=r"no adapter 'd' is loaded"):
        asyncio.run(engine.score(request.ids, [(5,)], "d"))
    after = serve(engine, [request])[0]
    assert (after.tokens, after.versions) == (before.tokens, before.versions)
    assert empty(engine)


def test_loading_and_unloading_wait_for_nobody_and_requests_in_flight_end_as_they_began() -> None:
    """The old weights stay in memory until no request uses them any more; new requests get the new ones."""
    model = make("llama")
    engine = loaded(model)
    request = ask(0, words(random.Random(4), 9), 120, adapter="a")
    alone = serve(engine, [request])[0]

    async def play() -> Completion:
        task = asyncio.create_task(engine.generate(request))
        began = engine.stats().sampled_tokens
        while engine.stats().sampled_tokens < began + 3:
            await asyncio.sleep(0)
        engine.load("a", random_adapter(model, 4, 50), 1)
        engine.unload("a")
        with pytest.raises(EngineError, match="no adapter 'a' is loaded"):
            await engine.generate(request)
        return await task

    found = asyncio.run(play())
    assert (found.tokens, found.versions) == (alone.tokens, alone.versions)
    engine.load("a", random_adapter(model, 4, 50), 1)
    assert {*serve(engine, [request])[0].versions} == {1}
    assert not engine._retired, "nobody names the old weights any more"

"""Every supported family: engine and learner agree with plain transformers, also with sliding windows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from families import FAMILIES, WORDS, make
from helpers import ask, close_to, empty, full_forward, serve, words
from transformers import PreTrainedModel

from interplay.engines.local import LocalEngine
from interplay.models.load import FALLBACK_TEMPLATE, Loaded, load
from interplay.training.forward import logprobs
from interplay.training.tries import Example
from interplay.types import Sample

WINDOWS = {"mistral": 7, "gemma3": 6, "phi3": 9}


class Twins:
    """The same weights twice: with our attention function, and with transformers' own."""

    def __init__(self, family: str) -> None:
        self.ours: PreTrainedModel = make(family)
        self.theirs: PreTrainedModel = make(family, "sdpa")

    def engine(self, **options: Any) -> LocalEngine:
        return LocalEngine(self.ours, 4096, 4, **options)


@pytest.fixture(scope="module", params=list(FAMILIES))
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.param)


@pytest.mark.parametrize("prefill_tokens", [16_384, 11])
def test_greedy_output_equals_generate(twins: Twins, prefill_tokens: int) -> None:
    rng = random.Random(0)
    requests = [ask(i, words(rng, n), 12, temperature=0.0) for i, n in enumerate((1, 5, 16, 31, 40))]
    engine = twins.engine(prefill_tokens=prefill_tokens)
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        with torch.no_grad():
            theirs = twins.theirs.generate(
                torch.tensor([request.ids]), do_sample=False, max_new_tokens=12, min_new_tokens=12, eos_token_id=None
            )
        assert completion.tokens == tuple(theirs[0, len(request.ids) :].tolist())
    assert empty(engine)


def test_promise_2_logprobs_equal_a_full_forward_pass_in_engine_score_and_learner(twins: Twins) -> None:
    """Several samples of one prompt, and a second turn that continues one of them: a trie that branches twice."""
    rng = random.Random(1)
    prompt = words(rng, 23)
    first = [ask(i, prompt, 5 + i) for i in range(3)] + [ask(8, words(rng, 2), 4), ask(9, words(rng, 37), 6)]
    engine = twins.engine(prefill_tokens=20)
    said = serve(engine, first)
    longer = [ask(20 + i, prompt + said[1].tokens + words(rng, 3), 7) for i in range(1)] * 2
    longer[1] = replace(longer[1], seed=5)
    saved = engine.scheduler.saved_tokens
    said += serve(engine, longer)
    assert engine.scheduler.saved_tokens > saved
    examples = []
    for i, (request, completion) in enumerate(zip(first + longer, said, strict=True)):
        expected = full_forward(twins.theirs, request.ids, completion.tokens)
        close_to(completion.logprobs, expected)
        examples.append(example(i, request.ids, completion.tokens, "1" if i >= len(first) else None))
    for limit in (4096, 64):
        for mine, completion in zip(logprobs(twins.ours, examples, limit), said, strict=True):
            close_to(mine, torch.tensor(completion.logprobs))
    forced = [replace(r, forced=c.tokens, key=(100 + i,)) for i, (r, c) in enumerate(zip(first, said, strict=False))]
    for scored, completion in zip(serve(engine, forced), said, strict=False):
        assert scored.tokens == completion.tokens
        close_to(scored.logprobs, torch.tensor(completion.logprobs))
    assert empty(engine)


def example(number: int, prompt: tuple[int, ...], action: tuple[int, ...], extends: str | None) -> Example:
    size = len(action)
    return Example("p", Sample(str(number), prompt, action, (0.0,) * size, (0,) * size, "", extends=extends))


@pytest.mark.parametrize("family", WINDOWS)
def test_a_window_counts_the_token_itself(family: str) -> None:
    """Guards this file: the windows are used, and one token more or less would be noticed."""
    twins = Twins(family)
    window = WINDOWS[family]
    assert twins.ours.config.sliding_window == window
    prompt, action = words(random.Random(2), 30), (5, 6, 7)
    right = full_forward(twins.theirs, prompt, action)
    for other in (window - 1, window + 1):
        config = FAMILIES[family]()
        config.sliding_window = other
        config._attn_implementation = "sdpa"
        moved = type(twins.theirs)(config).eval()
        moved.load_state_dict(twins.theirs.state_dict())
        assert (full_forward(moved, prompt, action) - right).abs().max() > 1e-3


def test_a_batch_of_a_long_and_a_short_row_leaves_no_nan_behind() -> None:
    """A padded row ends far behind its window: it must see something, and scratch space must stay finite."""
    twins = Twins("mistral")
    engine = twins.engine()
    rng = random.Random(3)
    prompt = words(rng, 60)
    serve(engine, [ask(0, prompt, 2)])
    requests = [ask(1, (*prompt, 5), 3), ask(2, words(rng, 40), 3)]  # one new token at 60 beside forty at 0
    for request, completion in zip(requests, serve(engine, requests), strict=True):
        close_to(completion.logprobs, full_forward(twins.theirs, request.ids, completion.tokens))
    for tensor in (*engine.runner.keys, *engine.runner.values):  # type: ignore[attr-defined]
        assert tensor.isfinite().all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_folder_of_the_family_is_loaded_and_served(family: str, tiny: Loaded, tmp_path: Path) -> None:
    plain = make(family, "sdpa")
    plain.save_pretrained(tmp_path)
    tokenizer = tiny.tokenizer
    template = tokenizer.chat_template
    try:
        tokenizer.chat_template = None if family == "gpt2" else template
        tokenizer.save_pretrained(tmp_path)
    finally:
        tokenizer.chat_template = template
    loaded = load(str(tmp_path), "cpu", torch.float32, seed=0)
    assert loaded.tokenizer.chat_template == (FALLBACK_TEMPLATE if family == "gpt2" else template)
    assert loaded.stop_ids == (1,)
    messages = [{"role": "user", "content": "cooperate or defect"}]
    prompt = loaded.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    ids = tuple(i % WORDS for i in prompt)  # the tokenizer knows more words than the model
    completion = serve(LocalEngine(loaded.model, 256, 4), [ask(0, ids, 5)])[0]
    close_to(completion.logprobs, full_forward(plain, ids, completion.tokens))


@pytest.mark.parametrize("family", ["llama", "gemma3"])  # with the plain runner and through transformers' modules
def test_half_precision_runs_on_a_cpu(family: str) -> None:
    model = make(family).to(torch.bfloat16)
    engine = LocalEngine(model, 4096, 16)
    rng = random.Random(0)
    wanted = [ask(i, words(rng, 5 + i), 6) for i in range(3)]
    for request, done in zip(wanted, serve(engine, wanted), strict=True):
        expected = full_forward(model, request.ids, done.tokens)
        assert max(abs(a - b) for a, b in zip(done.logprobs, expected.tolist(), strict=True)) < 0.1
    engine.close()

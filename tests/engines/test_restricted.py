"""Restrictions on replies: legal replies, top-k and similar cuts, stop strings, temperature; and scoring given
replies."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from families import WORDS, make
from helpers import Hold, ask, close_to, empty, full_forward, serve, words
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.sampler import restrict
from interplay.errors import EngineError
from interplay.models.load import Loaded
from interplay.types import Stop

END = 1
ONE, ZERO, TWO = 11, 10, 12
LEGAL = ((ONE, END), (ONE, ZERO, END), (ONE, ZERO, ZERO, END), (TWO, END), (5, 6, 7, END))  # "1", "10", "100", "2", ..
PROMPT = words(random.Random(0), 21)


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """Flat enough that every legal reply occurs within a few hundred samples."""
    out = make("qwen2")
    with torch.no_grad():
        out.lm_head.weight *= 0.3  # type: ignore[operator, union-attr]
    return out


@pytest.fixture(scope="module")
def plain(model: PreTrainedModel) -> PreTrainedModel:
    out = make("qwen2", "sdpa")
    out.load_state_dict(model.state_dict())
    return out


@pytest.fixture
def engine(model: PreTrainedModel) -> LocalEngine:
    return LocalEngine(model, 16_384, 4)


@torch.no_grad()
def next_logits(model: Any, ids: tuple[int, ...]) -> Tensor:
    return model(torch.tensor([ids])).logits[0, -1].float()


def legal_logprobs(
    model: Any, ids: tuple[int, ...], legal: tuple[tuple[int, ...], ...], heat: float = 1.0
) -> dict[tuple[int, ...], list[float]]:
    """By hand: at every token, the probabilities of tokens with which some legal reply continues, renormalised."""
    out = {}
    for reply in legal:
        out[reply] = []
        for n, token in enumerate(reply):
            options = sorted({r[n] for r in legal if r[:n] == reply[:n] and len(r) > n})
            logits = next_logits(model, ids + reply[:n])[options] / heat
            out[reply].append(torch.log_softmax(logits, 0)[options.index(token)].item())
    return out


# -- legal replies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heat", [1.0, 0.6])
def test_only_legal_replies_are_produced_with_their_renormalised_probabilities(
    engine: LocalEngine, plain: PreTrainedModel, heat: float
) -> None:
    expected = legal_logprobs(plain, PROMPT, LEGAL, heat)
    assert sum(math.exp(sum(p)) for p in expected.values()) == pytest.approx(1.0, abs=1e-5)
    count = 600
    sampling = Sampling(heat, 4, (END,))
    free = [replace(ask(2000 + i, PROMPT, 3), seed=i) for i in range(5)]  # beside replies without limits
    requests = [Request((i,), PROMPT, i, sampling, legal=LEGAL) for i in range(count)]
    seen: Counter[tuple[int, ...]] = Counter()
    for request, completion in zip(requests + free, serve(engine, requests + free), strict=True):
        if not request.legal:
            close_to(completion.logprobs, full_forward(plain, PROMPT, completion.tokens))
            continue
        assert completion.tokens in LEGAL
        assert completion.stop is Stop.END
        assert completion.logprobs == pytest.approx(expected[completion.tokens], abs=1e-4)
        seen[completion.tokens] += 1
    chi = sum((seen[r] - count * math.exp(sum(p))) ** 2 / (count * math.exp(sum(p))) for r, p in expected.items())
    assert chi < 18.5  # chi-square with 4 degrees of freedom: p = 0.001
    assert empty(engine)


def test_the_legal_probabilities_follow_from_scores(engine: LocalEngine) -> None:
    """If replies share no beginning, the mask only renormalises the score of the first token."""
    legal = ((30, END), (31, END), (32, 33, END))
    scores = asyncio.run(engine.score(PROMPT, legal))
    total = math.log(sum(math.exp(s[0]) for s in scores))
    for i in range(20):
        completion = serve(engine, [Request((i,), PROMPT, i, Sampling(1.0, 3, (END,)), legal=legal)])[0]
        score = scores[legal.index(completion.tokens)]
        assert completion.logprobs[0] == pytest.approx(score[0] - total, abs=1e-4)
        assert completion.logprobs[1:] == pytest.approx([0.0] * (len(score) - 1), abs=1e-6), "only one way to go on"


def test_greedy_takes_the_most_likely_legal_token_at_every_step(engine: LocalEngine, plain: PreTrainedModel) -> None:
    for number in range(8):
        prompt = words(random.Random(100 + number), 9)
        said: tuple[int, ...] = ()
        while said not in LEGAL:
            options = sorted({r[len(said)] for r in LEGAL if r[: len(said)] == said})
            said += (options[int(next_logits(plain, prompt + said)[options].argmax())],)
        request = Request((0,), prompt, 0, Sampling(0.0, 4), legal=LEGAL)
        completion = serve(engine, [request])[0]
        assert completion.tokens == said
        assert completion.logprobs == (0.0,) * len(said)


def test_a_legal_reply_ends_where_it_ends_and_not_at_a_stop_inside_it(engine: LocalEngine) -> None:
    legal = ((5, END, 6, END), (7, 8, 9, END))
    for seed in range(6):
        completion = serve(engine, [Request((0,), PROMPT, seed, Sampling(1.0, 4, (END, 8)), legal=legal)])[0]
        assert completion.tokens in legal


def test_cuts_come_after_the_legal_mask(engine: LocalEngine, plain: PreTrainedModel) -> None:
    legal = tuple((t, END) for t in range(20, 30))
    logits = next_logits(plain, PROMPT)[20:30]
    best = {20 + int(i) for i in logits.topk(3).indices}
    requests = [Request((i,), PROMPT, i, Sampling(1.0, 2, top_k=3), legal=legal) for i in range(60)]
    completions = serve(engine, requests)
    assert {c.tokens[0] for c in completions} == best
    kept = torch.log_softmax(logits.topk(3).values, 0)
    for completion in completions:
        place = logits.topk(3).indices.tolist().index(completion.tokens[0] - 20)
        assert completion.logprobs[0] == pytest.approx(kept[place].item(), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"legal": ((5, END), ())}, "a legal reply has no tokens"),
        ({"legal": ((5, WORDS),)}, f"vocabulary of {WORDS}"),
        ({"legal": ((5, 6, 7, 8, END),)}, r"a legal reply has 5 tokens, but at most 4 may be sampled; raise"),
        ({"legal": ((7,), (5,), (5, 6))}, "a legal reply is the beginning of another"),
        ({"forced": (5, -1)}, f"vocabulary of {WORDS}"),
        ({"forced": (5,) * 300}, "the model takes at most 256"),
        ({"sampling": Sampling(1.0, 4, top_p=0.0)}, "0 < top_p"),
        ({"sampling": Sampling(1.0, 4, top_k=-1)}, "top_k ≥ 0"),
        ({"sampling": Sampling(1.0, 4, min_p=1.5)}, "min_p ≤ 1"),
        ({"sampling": Sampling(-1.0, 4)}, "temperature of at least 0"),
        ({"sampling": Sampling(math.nan, 4)}, "temperature of at least 0"),
        ({"sampling": Sampling(1.0, 4, stop_strings=("a",))}, "stop strings need a tokenizer"),
        ({"seed": -1}, "a seed from 0"),
        ({"seed": 1 << 63}, "a seed from 0"),
    ],
)
def test_a_malformed_request_is_refused_alone(engine: LocalEngine, change: dict[str, Any], sentence: str) -> None:
    good = ask(1, PROMPT, 4)

    async def play() -> list[Any]:
        bad = replace(ask(0, PROMPT, 4), **change)
        return await asyncio.gather(engine.generate(bad), engine.generate(good), return_exceptions=True)

    refused, served = asyncio.run(play())
    assert isinstance(refused, EngineError)
    with pytest.raises(EngineError, match=sentence):
        raise refused
    assert served.tokens == serve(engine, [good])[0].tokens
    assert empty(engine)


# -- cuts -----------------------------------------------------------------------------------------------------------


def reference(logits: list[float], sampling: Sampling, legal: set[int] | None) -> dict[int, float]:
    """Which ids remain, with their probabilities: sorted, one after another, without tensors."""
    ids = [i for i in range(len(logits)) if legal is None or i in legal]
    heat = sampling.temperature
    ids.sort(key=lambda i: (-logits[i], i))
    top = logits[ids[0]]
    weight = {i: math.exp((logits[i] - top) / heat) for i in ids}
    total = sum(weight.values())
    kept: list[int] = []
    before = 0.0
    for rank, i in enumerate(ids):
        p = weight[i] / total
        if rank and (
            (sampling.top_k and rank >= sampling.top_k)
            or (sampling.top_p < 1 and before >= sampling.top_p)
            or weight[i] < sampling.min_p
        ):
            break
        kept.append(i)
        before += p
    mass = sum(weight[i] for i in kept)
    return {i: weight[i] / mass for i in kept}


# Values whose cumulative sums do not meet a bound exactly: there rounding would decide.
cuts = st.builds(
    Sampling,
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 2, 5, 50]),
    top_p=st.sampled_from([1.0, 0.9173, 0.5171, 0.0137]),
    min_p=st.sampled_from([0.0, 0.0173, 0.3137, 1.0]),
)


@settings(max_examples=150)
@given(st.integers(0, 1 << 30), st.lists(st.tuples(cuts, st.booleans()), min_size=1, max_size=4))
def test_cuts_leave_what_a_plain_reference_leaves(seed: int, rows: list[tuple[Sampling, bool]]) -> None:
    rng = random.Random(seed)
    logits = [[rng.gauss(0, 2) for _ in range(23)] for _ in rows]
    legal = [sorted(rng.sample(range(23), rng.randint(1, 9))) if masked else None for _, masked in rows]
    out = restrict(torch.tensor(logits), [s for s, _ in rows], legal)
    for row, before, (sampling, _), ids in zip(out, torch.tensor(logits), rows, legal, strict=True):
        expected = reference(before.tolist(), sampling, None if ids is None else set(ids))
        assert row.isfinite().nonzero().flatten().tolist() == sorted(expected)
        p = torch.softmax(row / sampling.temperature, 0)
        for i, probability in expected.items():
            assert p[i].item() == pytest.approx(probability, rel=1e-4)


def test_a_top_p_of_one_cuts_nothing_off_however_the_sum_is_rounded() -> None:
    logits = torch.linspace(0, -60, 50_000).unsqueeze(0)
    out = restrict(logits, [Sampling(top_k=50_000)], [None])
    assert out.isfinite().all()


def test_frequencies_and_logprobs_of_cut_replies_are_those_of_what_is_left(
    engine: LocalEngine, plain: PreTrainedModel
) -> None:
    sampling = Sampling(0.8, 1, top_k=12, top_p=0.8031, min_p=0.05)
    expected = reference(next_logits(plain, PROMPT).tolist(), sampling, None)
    assert 3 < len(expected) <= 12
    count = 2000
    seen: Counter[int] = Counter()
    for completion in serve(engine, [Request((i,), PROMPT, i, sampling) for i in range(count)]):
        token = completion.tokens[0]
        assert completion.logprobs[0] == pytest.approx(math.log(expected[token]), abs=1e-4)
        seen[token] += 1
    apart = 0.5 * sum(abs(seen[i] / count - p) for i, p in expected.items())
    assert apart < 0.04


@pytest.mark.parametrize("heat", [0.5, 1.0, 2.0])
def test_temperature_is_honoured(engine: LocalEngine, plain: PreTrainedModel, heat: float) -> None:
    count = 2000
    p = torch.softmax(next_logits(plain, PROMPT) / heat, 0)
    completions = serve(engine, [Request((i,), PROMPT, i, Sampling(heat, 1)) for i in range(count)])
    observed = torch.bincount(torch.tensor([c.tokens[0] for c in completions]), minlength=WORDS) / count
    noise = 0.5 * (2 * p * (1 - p) / (math.pi * count)).sqrt().sum()  # expected distance of a sample of this size
    assert 0.5 * (observed - p).abs().sum() < 1.3 * noise
    longer = [ask(i, PROMPT, 6, heat) for i in range(3)]
    for request, completion in zip(longer, serve(engine, longer), strict=True):
        close_to(completion.logprobs, full_forward(plain, request.ids, completion.tokens, heat))
    scored = serve(engine, [replace(r, key=(9, i), forced=(5, 6, 7)) for i, r in enumerate(longer)])
    for completion in scored:
        close_to(completion.logprobs, full_forward(plain, PROMPT, (5, 6, 7), heat))


# -- stop strings ---------------------------------------------------------------------------------------------------


def test_a_stop_string_ends_the_reply_also_where_it_spans_tokens(tiny: Loaded) -> None:
    tokenizer = tiny.tokenizer
    engine = LocalEngine(tiny.model, 2048, 4, tokenizer=tokenizer)
    prompt = tuple(tokenizer("cooperate or defect").input_ids)
    whole = serve(engine, [replace(ask(0, prompt, 24), seed=3)])[0]
    text = tokenizer.decode(whole.tokens)
    ends = [len(tokenizer.decode(whole.tokens[: n + 1])) for n in range(24)]
    spanning = 0
    for first in range(0, ends[-1] - 4):
        string = text[first : first + 4]
        if "\ufffd" in string:
            continue
        request = replace(ask(0, prompt, 24), seed=3, sampling=Sampling(1.0, 24, stop_strings=("~never~", string)))
        stopped = serve(engine, [request])[0]
        cut = next(n for n in range(1, 25) if string in tokenizer.decode(whole.tokens[:n]))
        assert stopped.tokens == whole.tokens[:cut]
        assert stopped.logprobs == pytest.approx(whole.logprobs[:cut], abs=1e-5)
        assert stopped.stop is Stop.END
        last = text.index(string) + 3
        spanning += sum(e <= last for e in ends) > sum(e <= text.index(string) for e in ends)
        if spanning == 6:
            break
    assert spanning == 6, "guards this test: strings that span tokens"
    request = replace(ask(0, prompt, 24), seed=3, sampling=Sampling(1.0, 24, stop_strings=("~never~",)))
    assert serve(engine, [request])[0].stop is Stop.LENGTH
    assert empty(engine)


# -- scoring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefill_tokens", [16_384, 5])
def test_scores_equal_a_full_forward_pass_and_the_prompt_is_computed_once(
    model: PreTrainedModel, plain: PreTrainedModel, prefill_tokens: int
) -> None:
    engine = LocalEngine(model, 1024, 4, prefill_tokens=prefill_tokens)
    rng = random.Random(5)
    replies = [words(rng, n) for n in (1, 2, 9, 4, 4, 17)]
    computed: list[int] = []
    forward = engine.runner._forward  # type: ignore[attr-defined]

    def watch(ids: Tensor, *rest: Any) -> Tensor:
        computed.append(len(ids))
        return forward(ids, *rest)

    engine.runner._forward = watch  # type: ignore[attr-defined]
    scores = asyncio.run(engine.score(PROMPT, replies))
    for reply, score in zip(replies, scores, strict=True):
        close_to(score, full_forward(plain, PROMPT, reply))
    # Nothing comes after the last token of a reply, so it is not computed.
    assert sum(computed) == len(PROMPT) + sum(len(reply) - 1 for reply in replies)
    assert engine.scheduler.saved_tokens == (len(replies) - 1) * len(PROMPT)
    assert empty(engine)


def test_scoring_beside_sampling_and_all_or_nothing(engine: LocalEngine, plain: PreTrainedModel) -> None:
    sampled = [ask(i, PROMPT[:7], 12) for i in range(4)]  # keys of another shape than those of scores

    async def play() -> tuple[list[Any], list[tuple[float, ...]]]:
        tasks = [asyncio.create_task(engine.generate(r)) for r in sampled]
        scores = await engine.score(PROMPT, [(5, 6), (7,)])
        completions = await asyncio.gather(*tasks)
        for replies, sentence in (([(5,), (WORDS,)], "vocabulary"), ([(5,), ()], "has no tokens; expected at least")):
            with pytest.raises(EngineError, match=sentence):
                await engine.score(PROMPT, replies)
            engine.update(0)  # nothing is in flight: none was begun
        return completions, scores

    completions, scores = asyncio.run(play())
    for request, completion in zip(sampled, completions, strict=True):
        close_to(completion.logprobs, full_forward(plain, request.ids, completion.tokens))
    for reply, score in zip(((5, 6), (7,)), scores, strict=True):
        close_to(score, full_forward(plain, PROMPT, reply))
    assert asyncio.run(engine.score(PROMPT, [])) == []
    assert empty(engine)


# -- the end --------------------------------------------------------------------------------------------------------


def test_a_closed_engine_says_so_and_what_was_in_flight_is_told(engine: LocalEngine) -> None:
    begun = Hold(engine, lambda: engine.stats().sampled_tokens >= 6 and not engine._closed)

    async def play() -> list[Any]:
        tasks = [asyncio.create_task(engine.generate(ask(i, PROMPT, 200))) for i in range(3)]
        await begun.reached()
        engine.close()
        with pytest.raises(EngineError, match="the engine is closed"):
            await engine.generate(ask(9, PROMPT))
        return await asyncio.gather(*tasks, return_exceptions=True)

    for failure in asyncio.run(asyncio.wait_for(play(), timeout=60)):
        assert isinstance(failure, EngineError)
        assert "closed while" in str(failure)
    engine.close()

"""Models that see or hear: engine, learner and transformers agree, for any cache and batch."""

from __future__ import annotations

import asyncio
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import make
from helpers import close_to, random_adapter, serve
from sighted import FAMILIES, loaded, picture, sound
from torch import Tensor
from transformers import AutoConfig, AutoModelForMultimodalLM, Qwen2_5_VLConfig

from interplay.agents.render import Prompt, Renderer, Said
from interplay.cli.export import _merge
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.speculation import Speculation
from interplay.errors import EngineError, ModelError
from interplay.models.adapter import Adapter
from interplay.models.encode import encode
from interplay.models.families import family_of
from interplay.models.load import Loaded, Patches, blank, load
from interplay.models.lora import save_adapter
from interplay.models.perceive import perceive
from interplay.models.save import save as save_whole
from interplay.models.senses import encoder_bytes
from interplay.models.stacked import layers
from interplay.training.forward import logprobs, pieces, predict
from interplay.training.tries import Example
from interplay.types import Completion, Media, MediaSpan, Message, Sample


class Model:
    """A model of a family with its engine, and the same weights in plain transformers."""

    def __init__(self, family: str, folder: Path) -> None:
        self.family, self.folder = family, folder
        self.ours: Loaded = loaded(family, folder)
        self.theirs: Any = AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.renderer = Renderer(self.ours.tokenizer, self.ours.stop_ids, self.ours.senses)

    def media(self, seed: int) -> Media:
        return sound(seed) if self.family == "qwen2_audio" else picture(seed)

    def prompt(self, *seeds: int, text: str = "which cell?") -> Prompt:
        return self.renderer.prompt((Message("user", text, media=tuple(map(self.media, seeds))),))

    def inputs(self, prompt: Prompt) -> dict[str, Tensor]:
        """The processor's inputs to transformers for the media of a prompt."""
        senses = self.ours.senses
        assert senses is not None
        found = [senses._perceived(m.digest, m.media).inputs for m in prompt.media]
        axis = 1 if self.family in ("idefics3", "smolvlm") else 0
        return {name: torch.cat([f[name] for f in found], axis) for name in found[0]}

    @torch.no_grad()
    def forward(self, prompt: Prompt, action: tuple[int, ...]) -> Tensor:
        """The log-probs of a reply by transformers alone, from ids and pixels."""
        ids = torch.tensor([[*prompt.ids, *action]])
        senses = self.ours.senses
        assert senses is not None
        more: dict[str, Tensor] = {"attention_mask": torch.ones_like(ids)}
        if senses.family.mrope:
            more["mm_token_type_ids"] = (ids == senses.token_id).long()
        self.theirs.model.rope_deltas = None
        logits = self.theirs(input_ids=ids, **self.inputs(prompt), **more).logits[0, len(prompt.ids) - 1 : -1]
        return torch.log_softmax(logits, -1)[torch.arange(len(action)), torch.tensor(action)]

    def learner(self, *samples: Sample) -> list[list[float]]:
        return logprobs(self.ours.model, [Example("p", s) for s in samples], 4096)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    pytest.importorskip("PIL")
    yield Model(request.param, tmp_path_factory.mktemp(request.param))


def ask(prompt: Prompt, key: int = 0, tokens: int = 6, temperature: float = 1.0) -> Request:
    return Request((key,), prompt.ids, 1000 + key, Sampling(temperature, tokens), media=prompt.media)


def said(prompt: Prompt, found: Completion, name: str = "a", extends: str | None = None) -> Sample:
    return Sample(name, prompt.ids, found.tokens, found.logprobs, (), "", media=prompt.media, extends=extends)


def check(model: Model, prompt: Prompt, found: Completion) -> None:
    """Engine, learner and transformers give the sampled tokens the same log-probs."""
    if model.ours.senses is not None and model.ours.senses.token_id not in found.tokens:
        close_to(found.logprobs, model.forward(prompt, found.tokens))
    close_to(found.logprobs, torch.tensor(model.learner(said(prompt, found))[0]))


def test_engine_learner_and_transformers_agree_on_a_prompt_with_two_media(model: Model) -> None:
    engine = LocalEngine(model.ours.model)
    prompt = model.prompt(1, 2)
    assert [m.digest for m in prompt.media] == [model.media(1).digest, model.media(2).digest]
    (found,) = serve(engine, [ask(prompt)])
    check(model, prompt, found)
    engine.close()


def test_drafts_of_an_earlier_reply_to_the_same_pictures_change_nothing(model: Model) -> None:
    """The first request fills the drafts; the second one has the same random numbers, so they are right."""
    engine = LocalEngine(model.ours.model, speculation=Speculation("on", 2))
    prompt = model.prompt(1, 2)
    (first,), (second,) = (serve(engine, [ask(prompt)]) for _ in range(2))
    assert first.tokens == second.tokens
    assert engine.stats().accepted_tokens > 0
    check(model, prompt, second)
    engine.close()


def test_greedy_decoding_is_that_of_generate(model: Model) -> None:
    engine = LocalEngine(model.ours.model)
    prompt = model.prompt(1)
    (found,) = serve(engine, [ask(prompt, temperature=0.0)])
    ids = torch.tensor([prompt.ids])
    more: dict[str, Tensor] = {"attention_mask": torch.ones_like(ids)}
    assert model.ours.senses is not None
    if model.ours.senses.family.mrope:
        more["mm_token_type_ids"] = (ids == model.ours.senses.token_id).long()
    model.theirs.model.rope_deltas = None
    with torch.no_grad():
        theirs = model.theirs.generate(
            input_ids=ids, **model.inputs(prompt), **more, do_sample=False, max_new_tokens=6, eos_token_id=None
        )
    assert tuple(theirs[0, len(prompt.ids) :].tolist()) == found.tokens
    engine.close()


def test_prompts_with_equal_ids_and_other_pictures_share_nothing_in_the_prefix_cache(model: Model) -> None:
    engine = LocalEngine(model.ours.model, block_size=4)
    one, other = model.prompt(1), model.prompt(7)
    assert one.ids == other.ids and one.digest != other.digest
    first, second = serve(engine, [ask(one, 1), ask(other, 2)])
    (again,) = serve(engine, [ask(one, 1)])
    check(model, one, first)
    check(model, other, second)
    assert again.tokens == first.tokens and engine.stats().cached_tokens >= len(one.ids) - 4
    close_to(again.logprobs, torch.tensor(first.logprobs))
    engine.close()


def test_a_chunked_prefill_may_cut_through_a_picture(model: Model) -> None:
    engine = LocalEngine(model.ours.model, block_size=4, prefill_tokens=5)
    one, other = model.prompt(1, 3), model.prompt(2)
    for prompt, found in zip((one, other), serve(engine, [ask(one, 1), ask(other, 2)]), strict=True):
        check(model, prompt, found)
    engine.close()


def test_a_conversation_shows_a_picture_in_each_turn_and_keeps_its_ids(model: Model) -> None:
    """The second prompt extends the first token for token, the cache has the first turn, and the learner puts both
    turns and a second candidate into one trie."""
    engine = LocalEngine(model.ours.model, block_size=4)
    first = model.prompt(1)
    one, two = serve(engine, [ask(first, 1, tokens=4), ask(first, 2, tokens=3)])
    reply, ended = model.renderer.decode(one.tokens)
    messages = (
        Message("user", "which cell?", media=(model.media(1),)),
        Message("assistant", reply),
        Message("user", "and now?", media=(model.media(2),)),
    )
    second = model.renderer.prompt(messages, Said(first, one.tokens, reply, ended, "a"))
    if second.extends is None:
        pytest.skip("the sampled reply holds a placeholder, so the prompt was rendered again")
    assert second.ids[: len(first.ids) + len(one.tokens)] == first.ids + one.tokens
    assert [m.digest for m in second.media] == [model.media(1).digest, model.media(2).digest]
    before = engine.stats().cached_tokens
    (three,) = serve(engine, [ask(second, 3)])
    assert engine.stats().cached_tokens > before
    samples = said(first, one), said(first, two, "b"), said(second, three, "c", "a")
    for sample, found in zip(samples, model.learner(*samples), strict=True):
        close_to(sample.logprobs, torch.tensor(found))
    if model.ours.senses is not None and model.ours.senses.token_id not in (*one.tokens, *three.tokens):
        close_to(three.logprobs, model.forward(second, three.tokens))
    engine.close()


@pytest.mark.parametrize("size", [(33, 47), (50, 19), (9, 90), (3, 50)])
def test_pictures_whose_sides_are_no_multiples_of_a_patch(model: Model, size: tuple[int, int]) -> None:
    """Compared with transformers alone: the processor gets the text and both pictures in one call."""
    if model.family == "qwen2_audio":
        pytest.skip("it hears")
    from PIL import Image

    senses = model.ours.senses
    assert senses is not None
    media = picture(5, *size), picture(6, *size[::-1])
    prompt = model.renderer.prompt((Message("user", "which cell?", media=media),))
    images = [Image.open(io.BytesIO(one.data)) for one in media]
    nested = [images] if model.family in ("idefics3", "smolvlm") else images
    given = senses.processor(text=[prompt.text], images=nested, return_tensors="pt", add_special_tokens=False)
    assert tuple(given.pop("input_ids")[0].tolist()) == prompt.ids
    action = (20, 21, 22, 1)
    ids = torch.tensor([[*prompt.ids, *action]])
    given["attention_mask"] = torch.ones_like(ids)
    if senses.family.mrope:
        given["mm_token_type_ids"] = (ids == senses.token_id).long()
    model.theirs.model.rope_deltas = None
    with torch.no_grad():
        logits = model.theirs(input_ids=ids, **given).logits[0, len(prompt.ids) - 1 : -1]
    expected = torch.log_softmax(logits, -1)[torch.arange(len(action)), torch.tensor(action)]
    engine = LocalEngine(model.ours.model)
    (found,) = asyncio.run(engine.score(prompt.ids, [action], media=prompt.media))
    engine.close()
    close_to(tuple(found), expected)
    sample = Sample("a", prompt.ids, action, tuple(found), (), "", media=prompt.media)
    close_to(tuple(found), torch.tensor(model.learner(sample)[0]))


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (3, 4001)])
@pytest.mark.parametrize("most", [0, 1024, 150])
def test_very_long_pictures_are_read_or_refused_with_a_sentence(model: Model, size: tuple[int, int], most: int) -> None:
    """Qwen's processors take no sides with a ratio above 200; max_pixels may bring a picture below that."""
    if model.family == "qwen2_audio":
        pytest.skip("it hears")
    senses = model.ours.senses
    assert senses is not None
    shown, refused = picture(1, *size), None
    try:
        found = perceive(senses.processor, senses.token, shown, most)
    except ModelError as error:
        refused = str(error)
    if senses.family.mrope and most != 150:
        assert refused is not None and re.search(r"refuses a picture of \d+ × \d+ pixels \(.+\); expected", refused)
    else:
        assert refused is None
        features = encode(model.ours.model, [found.inputs])[0]
        assert len(features) == found.ids.count(senses.token_id) > 0


def test_no_gradient_reaches_the_embedding_of_a_placeholder(model: Model) -> None:
    weight = model.ours.model.get_input_embeddings().weight
    prompt = model.prompt(1)
    sample = Sample("a", prompt.ids, (20, 21, 1), (0.0,) * 3, (), "", media=prompt.media)
    (batch,) = pieces(model.ours.model, [Example("p", sample)], 4096)
    predict(model.ours.model, batch, 1.0)[0].sum().backward()
    senses = model.ours.senses
    assert senses is not None and weight.grad is not None
    assert not weight.grad[senses.token_id].any()
    assert weight.grad[prompt.ids[0]].any()
    assert all(p.grad is None for part in senses.parts for p in part.parameters())
    model.ours.model.zero_grad()


def test_a_sampled_placeholder_is_an_ordinary_token(model: Model) -> None:
    """Transformers refuses such a sequence; here the features stay at the places that the prompt's span names."""
    engine = LocalEngine(model.ours.model)
    senses = model.ours.senses
    assert senses is not None
    prompt = model.prompt(1)
    reply = (30, senses.token_id, 31, senses.token_id, 1)
    (scores,) = asyncio.run(engine.score(prompt.ids, [reply], media=prompt.media))
    close_to(scores, torch.tensor(model.learner(Sample("a", prompt.ids, reply, (), (), "", media=prompt.media))[0]))
    (plain,) = asyncio.run(engine.score(prompt.ids, [reply[:1]], media=prompt.media))
    close_to(plain, model.forward(prompt, reply[:1]))
    engine.close()


def test_adapters_are_on_the_language_part_alone(model: Model) -> None:
    senses = model.ours.senses
    assert senses is not None
    eye = {m for part in senses.parts for m in part.modules()}
    assert layers(model.ours.model) and not any(layer in eye for layer in layers(model.ours.model).values())
    engine = LocalEngine(model.ours.model)
    adapter = random_adapter(model.ours.model, 2, 5)
    engine.load("a", adapter, 3)
    prompt = model.prompt(1)
    (found,) = serve(engine, [replace(ask(prompt), adapter="a")])
    (expected,) = logprobs(model.ours.model, [Example("p", said(prompt, found))], 4096, {"p": adapter})
    close_to(found.logprobs, torch.tensor(expected))
    engine.close()


def test_an_export_gives_the_same_log_probs_in_plain_transformers(model: Model, tmp_path: Path) -> None:
    """All weights; and an adapter that is merged into its base. Interplay reads both again, with the processor."""
    prompt, reply = model.prompt(1), (20, 21, 1)
    adapter = random_adapter(model.ours.model, 2, 5)
    save_adapter(adapter, tmp_path / "adapter", str(model.folder))
    save_whole(model.ours, tmp_path / "whole")
    _merge(str(model.folder), tmp_path / "adapter", tmp_path / "merged", 0)
    sample, before = Sample("a", prompt.ids, reply, (), (), "", media=prompt.media), model.theirs
    cases: dict[str, dict[str, Adapter]] = {"whole": {}, "merged": {"p": adapter}}
    for name, given in cases.items():
        model.theirs = AutoModelForMultimodalLM.from_pretrained(tmp_path / name, dtype=torch.float32).eval()
        try:
            (ours,) = logprobs(model.ours.model, [Example("p", sample)], 4096, given)
            close_to(ours, model.forward(prompt, reply))
        finally:
            model.theirs = before
        again = load(str(tmp_path / name), "cpu", torch.float32, 0)
        renderer = Renderer(again.tokenizer, again.stop_ids, again.senses)
        assert renderer.prompt((Message("user", "which cell?", media=(model.media(1),)),)) == prompt


def test_text_in_a_message_never_becomes_a_picture(model: Model) -> None:
    senses = model.ours.senses
    assert senses is not None
    prompt = model.prompt(text=f"a {senses.token} b")
    assert senses.token_id not in prompt.ids and prompt.media == ()


def test_features_are_computed_once_and_their_bits_do_not_depend_on_the_batch(model: Model) -> None:
    """While the eye is frozen, features that are computed alone and among others have the same bits, and are kept."""
    senses = model.ours.senses
    assert senses is not None
    spans = model.prompt(11, 12, 13).media
    alone = {s.digest: senses.features([s])[s.digest].clone() for s in spans}
    senses.moved()
    together = senses.features(spans)
    assert all(torch.equal(alone[d], together[d]) for d in alone)
    assert all(senses.features(spans)[d] is together[d] for d in alone)


def test_the_memory_of_an_encoder_is_counted(model: Model) -> None:
    assert encoder_bytes(model.ours.model) > 1 << 20


def test_the_memory_of_qwens_encoder_and_of_a_text_model() -> None:
    """By hand, in bf16: 57,065 patches in a call, each with the residual stream in fp32, queries, keys, values, rotated
    queries and keys, and the result; and copies of the three matrices of 32 feed-forward layers."""
    assert encoder_bytes(make("llama")) == 0
    with torch.device("meta"):
        large = blank("Qwen2.5-VL", Qwen2_5_VLConfig(), torch.bfloat16)
    eye = large.config.vision_config
    assert (eye.hidden_size, eye.intermediate_size, eye.depth, eye.patch_size) == (3584, 3420, 32, 14)
    assert encoder_bytes(large) == 57_065 * (4 + 2 * 6) * 3584 + 2 * 3 * 32 * 3424 * 3584


def test_an_engine_refuses_media_that_its_model_cannot_take() -> None:
    engine = LocalEngine(make("llama"))
    with pytest.raises(EngineError, match="reads only text"):
        serve(engine, [Request((0,), (5, 6, 7), 0, Sampling(), media=(MediaSpan(1, 1, "ab"),))])
    engine.close()


@pytest.mark.parametrize("kind", ["gemma3", "qwen3_vl", "mllama", "internvl"])
def test_families_that_are_not_exact_are_refused_with_the_reason(kind: str) -> None:
    reason = {
        "gemma3": "both directions", "qwen3_vl": "deepstack", "mllama": "cross-attention",
    }.get(kind, "never compared")  # fmt: skip
    with pytest.raises(ModelError, match=reason):
        family_of("some/model", AutoConfig.for_model(kind))


def test_positions_of_a_picture_are_those_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    model = Model("qwen2_5_vl", tmp_path)
    assert any(isinstance(module, Patches) for module in model.ours.model.modules())
    senses = model.ours.senses
    assert senses is not None
    prompt = model.renderer.prompt((Message("user", "see", media=(picture(1, 64, 32), picture(2, 32, 80))),))
    places, end = senses.places(prompt.ids, prompt.media)
    ids = torch.tensor([prompt.ids])
    grids = model.inputs(prompt)["image_grid_thw"]
    kinds = (ids == senses.token_id).long()
    theirs, delta = model.theirs.model.get_rope_index(ids, image_grid_thw=grids, mm_token_type_ids=kinds)
    np.testing.assert_array_equal(places, theirs[:, 0].numpy())
    assert end - len(prompt.ids) == int(delta)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no build for this machine")
@pytest.mark.parametrize("family", ["qwen2_5_vl"])
def test_the_gpu_engine_and_learner_say_with_pictures_what_the_plain_ones_say(family: str) -> None:
    """The kernels run in Triton's interpreter: prompts in pieces, adapters, three rotary positions."""
    pytest.importorskip("PIL")
    script = Path(__file__).with_name("interpreted_senses.py")
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script), family], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "equal"

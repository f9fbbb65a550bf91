"""Training a model that sees: what is trained, what stays unchanged, and what is saved."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sighted import loaded, picture
from transformers import AutoModelForMultimodalLM, AutoProcessor

from interplay.agents.render import Renderer
from interplay.config import TrainSection
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.models.load import Loaded
from interplay.models.lora import new_adapter, save_adapter
from interplay.models.perceive import picture as opened
from interplay.models.save import save
from interplay.models.senses import Senses, thaw
from interplay.training.local import LocalLearner
from interplay.training.tries import Example
from interplay.types import Message, Sample

pytest.importorskip("PIL")


@pytest.fixture
def seeing(tmp_path: Path) -> Loaded:
    return loaded("llava-siglip", tmp_path / "model")


def senses_of(model: Loaded) -> Senses:
    assert model.senses is not None
    return model.senses


def examples(model: Loaded) -> list[Example]:
    renderer = Renderer(model.tokenizer, model.stop_ids, model.senses)
    out = []
    for seed, text in ((1, "U"), (2, "D"), (3, "L")):
        prompt = renderer.prompt((Message("user", "move", media=(picture(seed, 32, 32),)),))
        action = renderer.encode_reply(text)
        zeros = (0.0,) * len(action)
        out.append(Example("p", Sample(str(seed), prompt.ids, action, zeros, (), text, media=prompt.media)))
    return out


def eye(model: Loaded) -> dict[str, Any]:
    return {
        f"{i}.{name}": p.detach().clone()
        for i, part in enumerate(senses_of(model).parts)
        for name, p in part.named_parameters()
    }


def agree(model: Loaded, learner: LocalLearner, engine: LocalEngine) -> None:
    """Engine and learner give the examples the same log-probs."""
    for example, ours in zip(examples(model), learner.logprobs(examples(model)), strict=True):
        s = example.sample
        (theirs,) = asyncio.run(engine.score(s.prompt, [s.action], media=s.media))
        torch.testing.assert_close(torch.tensor(theirs), torch.tensor(ours), atol=1e-4, rtol=0)


def test_the_eye_stays_as_it_is_unless_asked(seeing: Loaded) -> None:
    before, learner = eye(seeing), LocalLearner("p", seeing.model, TrainSection(), 1e-2, 0)
    losses = [learner.imitate(examples(seeing)) for _ in range(8)]
    assert losses[-1] < losses[0] / 2
    assert all(torch.equal(p, before[name]) for name, p in eye(seeing).items())
    assert not any("vision" in name or "projector" in name for name in learner.weights())
    assert senses_of(seeing).version == 0, "features of a frozen eye are computed once"


def test_the_eye_learns_on_request_and_the_engine_sees_with_the_new_one(seeing: Loaded) -> None:
    senses_of(seeing).learns = True
    thaw(seeing.model)
    before, learner, engine = (
        eye(seeing), LocalLearner("p", seeing.model, TrainSection(), 1e-2, 0), LocalEngine(seeing.model),
    )  # fmt: skip
    agree(seeing, learner, engine)
    for _ in range(3):
        learner.imitate(examples(seeing))
    assert any(not torch.equal(p, before[name]) for name, p in eye(seeing).items())
    engine.update(1)
    agree(seeing, learner, engine)
    engine.close()


def test_imitation_of_the_base_under_adapters_leaves_a_frozen_eye_alone(seeing: Loaded) -> None:
    seeing.model.requires_grad_(False)
    thaw(seeing.model)
    assert not senses_of(seeing).thawed and seeing.model.get_output_embeddings().weight.requires_grad
    senses_of(seeing).learns = True
    thaw(seeing.model)
    assert senses_of(seeing).thawed


def test_a_saved_model_loads_in_plain_transformers(seeing: Loaded, tmp_path: Path) -> None:
    """Model and processor; the attention functions in memory are still ours."""
    save(seeing, tmp_path / "saved")
    assert "interplay" not in (tmp_path / "saved" / "config.json").read_text()
    assert seeing.model.config.get_text_config()._attn_implementation == "interplay"
    assert seeing.model.config.vision_config._attn_implementation == "sdpa"
    theirs = AutoModelForMultimodalLM.from_pretrained(tmp_path / "saved").eval()
    processor = AutoProcessor.from_pretrained(tmp_path / "saved")
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "move"}]}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True)
    inputs = processor(text=[text], images=[opened(picture(1, 32, 32))], return_tensors="pt", add_special_tokens=False)
    sample = examples(seeing)[0].sample
    assert tuple(inputs["input_ids"][0].tolist()) == sample.prompt
    with torch.no_grad():
        logits = theirs(**inputs).logits[0, -1]
    expected = torch.log_softmax(logits, -1)[sample.action[0]]
    engine = LocalEngine(seeing.model)
    (found,) = asyncio.run(engine.score(sample.prompt, [sample.action], media=sample.media))
    torch.testing.assert_close(torch.tensor(found[0]), expected, atol=1e-4, rtol=0)
    engine.close()


def test_an_adapter_of_the_language_part_loads_in_peft(seeing: Loaded, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    adapter = new_adapter(seeing.model, 4, 8.0, [], 0)
    generator = torch.Generator().manual_seed(1)
    weights = {n: (d, torch.randn(u.shape, generator=generator)) for n, (d, u) in adapter.weights.items()}
    adapter = replace(adapter, weights=weights)
    save(seeing, tmp_path / "base")
    save_adapter(adapter, tmp_path / "adapter", str(tmp_path / "base"))
    theirs = peft.PeftModel.from_pretrained(
        AutoModelForMultimodalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter"
    ).eval()
    sample = examples(seeing)[0].sample
    pixels = senses_of(seeing)._perceived("", sample.media[0].media).inputs["pixel_values"]
    with torch.no_grad():
        logits = theirs(input_ids=torch.tensor([sample.prompt]), pixel_values=pixels).logits[0, -1]
    engine = LocalEngine(seeing.model)
    engine.load("a", adapter, 1)
    (found,) = asyncio.run(engine.score(sample.prompt, [sample.action], "a", sample.media))
    expected = torch.log_softmax(logits, -1)[sample.action[0]]
    torch.testing.assert_close(torch.tensor(found[0]), expected, atol=1e-4, rtol=0)
    engine.close()


def test_large_pictures_are_made_smaller_and_old_ones_are_left_out(tmp_path: Path) -> None:
    model = loaded("qwen2_5_vl", tmp_path)
    senses = senses_of(model)
    renderer = Renderer(model.tokenizer, model.stop_ids, senses)
    big = Message("user", "see", media=(picture(1, 64, 64),))
    assert renderer.prompt((big,)).media[0].length == 16
    senses.max_pixels, senses._known = 32 * 32, type(senses._known)()
    assert Renderer(model.tokenizer, model.stop_ids, senses).prompt((big,)).media[0].length == 4
    senses.limit = 2
    chat = tuple(Message("user", "see", media=(picture(seed, 32, 32),)) for seed in (1, 2, 3))
    shown = renderer.prompt(chat)
    assert [m.digest for m in shown.media] == [m.media[0].digest for m in chat[1:]]
    assert Request((0,), shown.ids, 0, Sampling(), media=shown.media).identity != shown.ids

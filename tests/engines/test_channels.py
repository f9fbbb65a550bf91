"""Soft channels: engine, learner and transformers agree on prompts that hold vectors, which never get mixed up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import close_to, serve
from sighted import loaded, picture
from torch import Tensor

from interplay.agents.render import Prompt, Renderer, Said
from interplay.agents.soft import CLOSE, OPEN
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.errors import ModelError
from interplay.models.channel import Channel
from interplay.models.channels import attached
from interplay.models.load import Loaded
from interplay.training.forward import logprobs, pieces, predict
from interplay.training.tries import Example
from interplay.types import Completion, Message, Sample, SoftMessage


class Wired:
    """A model with a channel to it: `tokens` vectors, or a gated one."""

    def __init__(self, loaded: Loaded, tokens: int) -> None:
        self.loaded, self.tokens = loaded, tokens
        wires = attached(loaded.model)
        self.channel = Channel("hint", wires.shape(tokens, 8, 2), seed=1)
        if not tokens:
            torch.nn.init.constant_(self.channel.gate, 0.7)
        wires.add(self.channel)
        self.renderer = Renderer(loaded.tokenizer, loaded.stop_ids)

    def message(self, seen: str, words: str = "which number is it?") -> Message:
        ids = self.renderer.prompt((Message("user", seen),)).ids
        soft = SoftMessage("hint", self.channel.version, ids, self.tokens, "" if self.tokens else words)
        return Message("user", words, media=(soft.media(),))

    def prompt(self, seen: str, words: str = "which number is it?") -> Prompt:
        return self.renderer.prompt((Message("system", "You play."), self.message(seen, words)))

    @torch.no_grad()
    def forward(self, prompt: Prompt, action: tuple[int, ...]) -> Tensor:
        """The log-probs of a reply by transformers alone, with vectors in the places of the prompt's spans."""
        model = self.loaded.model
        embeds = model.get_input_embeddings()(torch.tensor([*prompt.ids, *action]))
        for span in prompt.media:
            assert span.media is not None
            heard = model.base_model(torch.tensor([SoftMessage.read(span.media).ids])).last_hidden_state[0]
            place = slice(span.start, span.start + span.length)
            embeds[place] = self.channel(heard, embeds[place].clone())
        logits = model(inputs_embeds=embeds.unsqueeze(0)).logits[0, len(prompt.ids) - 1 : -1]
        return torch.log_softmax(logits, -1)[torch.arange(len(action)), torch.tensor(action)]

    def check(self, prompt: Prompt, found: Completion) -> None:
        """Engine, learner and transformers give the sampled tokens the same log-probs."""
        close_to(found.logprobs, self.forward(prompt, found.tokens))
        ours = logprobs(self.loaded.model, [Example("p", said(prompt, found))], 4096)
        close_to(found.logprobs, torch.tensor(ours[0]))


def ask(prompt: Prompt, key: int = 0) -> Request:
    return Request((key,), prompt.ids, 1000 + key, Sampling(1.0, 6), media=prompt.media)


def said(prompt: Prompt, found: Completion, name: str = "a", extends: str | None = None) -> Sample:
    return Sample(name, prompt.ids, found.tokens, found.logprobs, (), "", media=prompt.media, extends=extends)


@pytest.fixture(params=[3, 0], ids=["tokens", "gated"])
def wired(request: pytest.FixtureRequest, make_tiny: Callable[..., Loaded]) -> Wired:
    return Wired(make_tiny(0, "tiny-16x1"), request.param)


@pytest.mark.parametrize("chunk", [16_384, 7])
def test_engine_learner_and_transformers_agree_on_a_prompt_with_vectors(wired: Wired, chunk: int) -> None:
    """Also where a chunked prefill cuts through them."""
    engine = LocalEngine(wired.loaded.model, prefill_tokens=chunk, block_size=4)
    prompts = [wired.prompt(f"You see {n}") for n in (3, 5)]
    assert prompts[0].ids == prompts[1].ids and prompts[0].digest != prompts[1].digest
    for prompt, found in zip(prompts, serve(engine, [ask(p, i) for i, p in enumerate(prompts)]), strict=True):
        wired.check(prompt, found)
    (again,) = serve(engine, [ask(prompts[0])])  # from the prefix cache
    wired.check(prompts[0], again)
    assert engine.stats().cached_tokens > 0
    engine.close()


def test_prompts_with_equal_ids_and_other_vectors_stay_apart_in_one_batch_of_the_learner(wired: Wired) -> None:
    prompts = [wired.prompt(f"You see {n}") for n in (3, 5, 3)]
    action = wired.renderer.encode_reply("yes")
    zeros = (0.0,) * len(action)
    samples = [Sample(str(i), p.ids, action, zeros, (), "", media=p.media) for i, p in enumerate(prompts)]
    found = logprobs(wired.loaded.model, [Example("p", s) for s in samples], 4096)
    for prompt, ours in zip(prompts, found, strict=True):
        close_to(ours, wired.forward(prompt, action))
    assert found[0] == found[2] != found[1]


def test_a_later_prompt_extends_one_with_vectors_token_for_token(wired: Wired) -> None:
    engine = LocalEngine(wired.loaded.model)
    first, action = wired.prompt("You see 3"), wired.renderer.encode_reply("yes")
    messages = (Message("system", "You play."), wired.message("You see 3"), Message("assistant", "yes"))
    later = (*messages, wired.message("You see 8", "and now?"))
    second = wired.renderer.prompt(later, Said(first, action, "yes", True, "a"))
    assert second.extends == "a" and len(second.media) == 2
    assert second.ids[: len(first.ids) + len(action)] == first.ids + action
    (answer,) = serve(engine, [ask(second, 1)])
    wired.check(second, answer)
    zeros = (0.0,) * len(action)
    samples = [
        Sample("a", first.ids, action, zeros, (), "", media=first.media), said(second, answer, "b", "a"),
    ]  # fmt: skip
    both = logprobs(wired.loaded.model, [Example("p", s) for s in samples], 4096)
    close_to(answer.logprobs, torch.tensor(both[1]))
    engine.close()


def test_a_new_version_of_the_channel_makes_another_prompt_and_is_what_the_engine_uses(wired: Wired) -> None:
    engine = LocalEngine(wired.loaded.model)
    before = wired.prompt("You see 3")
    serve(engine, [ask(before)])
    with torch.no_grad():
        for parameter in wired.channel.parameters():
            parameter.mul_(1.5)
    wired.channel.version += 1
    after = wired.prompt("You see 3")
    assert after.ids == before.ids and after.digest != before.digest
    wired.check(after, serve(engine, [ask(after)])[0])
    engine.close()


def test_marks_in_the_words_themselves_do_no_harm(wired: Wired) -> None:
    """A model can write them too: they are characters like others."""
    odd = Message("assistant", f"yes {OPEN}{CLOSE}{CLOSE} no")
    prompt = wired.renderer.prompt((Message("user", "play"), odd, wired.message("You see 3")))
    assert len(prompt.media) == 1
    text = wired.renderer.prompt((Message("user", f"a {OPEN} b"),))
    assert text.media == () and wired.loaded.tokenizer.decode(text.ids).count(OPEN) == 1


def test_gradients_reach_the_channel_and_no_embedding(wired: Wired) -> None:
    model = wired.loaded.model
    prompt, action = wired.prompt("You see 3"), wired.renderer.encode_reply("yes")
    sample = Sample("a", prompt.ids, action, (0.0,) * len(action), (), "", media=prompt.media)
    model.requires_grad_(True)
    embedded: list[Tensor] = []

    def keep(module: object, given: object, out: Tensor) -> None:
        if out.requires_grad:  # not where the frozen base reads for the channel
            out.retain_grad()
            embedded.append(out)

    model.get_input_embeddings().register_forward_hook(keep)
    for batch in pieces(model, [Example("p", sample)], 4096):
        predict(model, batch, 1.0)[0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in wired.channel.parameters())
    (span,) = prompt.media
    (found,) = embedded
    assert found.grad is not None
    rows = found.grad[0].abs().sum(1)
    assert not rows[span.start : span.start + span.length].any() and rows[: span.start].all()


def test_a_muted_channel_passes_on_nothing(wired: Wired) -> None:
    wired.channel.mute = True
    action = wired.renderer.encode_reply("yes")
    one, other = (wired.forward(wired.prompt(f"You see {n}"), action) for n in (3, 5))
    assert torch.equal(one, other)
    if not wired.tokens:  # a closed gate leaves the prompt as it is without the channel
        plain = wired.renderer.prompt((Message("system", "You play."), Message("user", "which number is it?")))
        torch.testing.assert_close(one, wired.forward(plain, action), atol=1e-5, rtol=0)


def test_vectors_for_a_model_without_that_channel_are_refused(wired: Wired) -> None:
    prompt = wired.prompt("You see 3")
    (span,) = prompt.media
    assert span.media is not None
    stranger = replace(SoftMessage.read(span.media), channel="other").media()
    sample = Sample("a", prompt.ids, (5,), (0.0,), (), "", media=(replace(span, media=stranger),))
    with pytest.raises(ModelError, match="channel 'other', which this model does not have"):
        logprobs(wired.loaded.model, [Example("p", sample)], 4096)


@pytest.mark.parametrize("family", ["llava-siglip", "qwen2_5_vl"])
def test_what_the_sender_saw_is_passed_on_to_a_receiver_that_sees_too(family: str, tmp_path: Path) -> None:
    """Senders with equal ids and other pictures send other vectors, into a prompt that has a picture of its own."""
    pytest.importorskip("PIL")
    seeing = loaded(family, tmp_path)
    wires = attached(seeing.model)
    wires.add(Channel("hint", wires.shape(2, 8, 2), seed=1))
    renderer, engine = Renderer(seeing.tokenizer, seeing.stop_ids, seeing.senses), LocalEngine(seeing.model)
    prompts = []
    for seed in (1, 2):
        sender = renderer.prompt((Message("user", "look", media=(picture(seed),)),))
        soft = SoftMessage("hint", 0, sender.ids, 2, digests=tuple(s.digest for s in sender.media)).media(sender.media)
        prompts.append(renderer.prompt((Message("user", "move", media=(soft, picture(3))),)))
    assert prompts[0].ids == prompts[1].ids and prompts[0].digest != prompts[1].digest
    assert [len(p.media) for p in prompts] == [2, 2]
    action = renderer.encode_reply("yes")
    samples = [Sample(str(i), p.ids, action, (), (), "", media=p.media) for i, p in enumerate(prompts)]
    ours = logprobs(seeing.model, [Example("p", s) for s in samples], 4096)
    for sample, expected in zip(samples, ours, strict=True):
        (found,) = asyncio.run(engine.score(sample.prompt, [sample.action], media=sample.media))
        close_to(found, torch.tensor(expected))
    assert max(abs(a - b) for a, b in zip(*ours, strict=True)) > 1e-3
    engine.close()

"""From messages to ids: text is tokenised once, even if tokenising it again would give other tokens."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interplay.agents.render import Prompt, Renderer, Said
from interplay.errors import ModelError
from interplay.models.load import FALLBACK_TEMPLATE, Loaded, load
from interplay.models.save import save
from interplay.models.tiny import TEMPLATE, VOCABULARY, build_tokenizer
from interplay.types import Media, MediaSpan, Message

TOKENIZER = build_tokenizer()
END = TOKENIZER.eos_token_id
calm = settings(max_examples=100)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMING = TEMPLATE.replace("{{ m['content'] }}", "{{ m['content'] | trim }}")
FORGETTING = TEMPLATE.replace("{{ m['content'] }}", "{{ m['content'].split('</think>')[-1] }}")


def renderer(template: str = TEMPLATE) -> Renderer:
    tokenizer = copy.deepcopy(TOKENIZER)
    tokenizer.chat_template = template
    stop = [END]
    if "<|im_end|>" in template:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
        tokenizer.eos_token = "<|im_end|>"
        stop = [END, tokenizer.eos_token_id]
    return Renderer(tokenizer, stop)


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER(text, add_special_tokens=False)["input_ids"])


def pieces(*tokens: str) -> tuple[int, ...]:
    found = tuple(TOKENIZER.convert_tokens_to_ids(list(tokens)))
    assert all(i is not None for i in found)
    return found


class Talk:
    """One role's conversation, rendered as `ModelAgent` renders it."""

    def __init__(self, renderer: Renderer, opening: str) -> None:
        self.renderer = renderer
        self.messages: tuple[Message, ...] = (Message("system", "Play."), Message("user", opening))
        self.prompt: Prompt = renderer.prompt(self.messages)

    def reply(self, action: tuple[int, ...], answer: str) -> Prompt:
        text, ended = self.renderer.decode(action)
        self.messages += (Message("assistant", text), Message("user", answer))
        self.prompt = self.renderer.prompt(self.messages, Said(self.prompt, action, text, ended))
        return self.prompt


# -- promise 1 ------------------------------------------------------------------------------------------------------


def test_promise_1_sampled_ids_stand_in_the_next_prompt_though_their_text_would_tokenise_otherwise() -> None:
    spelled = (*pieces("r", "o", "c", "k"), END)
    assert encode("rock") == pieces("rock") != spelled[:-1]
    talk = Talk(renderer(), "Last round")
    first = talk.prompt
    second = talk.reply(spelled, "scissors")
    assert second.merged
    assert second.ids == first.ids + spelled + encode("<|user|>scissors<|end|><|assistant|>")
    anew = talk.renderer.prompt(talk.messages)
    assert anew.text == second.text, "the text is the template's, to the letter"
    assert anew.ids != second.ids, "and yet tokenising it would have changed the ids"
    assert anew.digest != second.digest


@calm
@given(
    st.lists(
        st.tuples(st.lists(st.integers(6, VOCABULARY - 1), max_size=6).map(tuple), st.booleans(), st.text(max_size=5)),
        min_size=1,
        max_size=4,
    )
)
def test_promise_1_holds_for_any_ids_over_many_turns(turns: list[tuple[tuple[int, ...], bool, str]]) -> None:
    """Broken UTF-8, ids without text, empty replies, truncated replies: the next prompt begins with the same ids."""
    talk = Talk(renderer(), "go")
    for action, ended, answer in turns:
        before = talk.prompt
        action = (*action, END) if ended else action
        after = talk.reply(action, answer)
        assert after.merged
        assert after.ids[: len(before.ids) + len(action)] == before.ids + action
        added = after.ids[len(before.ids) + len(action) :]
        closing = "" if ended else "<|end|>"
        assert added == encode(f"{closing}<|user|>{answer}<|end|><|assistant|>")


def test_a_reply_cut_by_length_is_closed_by_the_template() -> None:
    talk = Talk(renderer(), "go")
    first = talk.prompt
    second = talk.reply(pieces("rock", "Ġ5"), "more")
    assert second.merged
    assert second.ids == first.ids + pieces("rock", "Ġ5") + (END,) + encode("<|user|>more<|end|><|assistant|>")
    assert TOKENIZER.decode(second.ids) == second.text


def test_special_tokens_that_were_sampled_stay_what_they_are() -> None:
    action = (*pieces("<|user|>", "rock", "<|pad|>"), END)
    talk = Talk(renderer(), "go")
    first = talk.prompt
    assert talk.renderer.decode(action) == ("<|user|>rock<|pad|>", True)
    second = talk.reply(action, "on")
    assert second.merged
    assert second.ids[len(first.ids) :][: len(action)] == action


# -- templates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "merged"), [("rock", True), ("rock ", False), (" rock", False), ("\n", False)])
def test_a_template_that_trims_replies_starts_a_new_segment_where_it_changed_one(text: str, merged: bool) -> None:
    talk = Talk(renderer(TRIMMING), "go")
    second = talk.reply((*encode(text), END), "on")
    assert second.merged is merged
    assert second.text.endswith(f"<|assistant|>{text.strip()}<|end|><|user|>on<|end|><|assistant|>")
    if not merged:
        assert second.ids == encode(second.text), "a new segment is the template's text, tokenised whole"
    third = talk.reply((*pieces("paper"), END), "on")
    assert third.merged, "the new segment is extended like any other"
    assert third.ids[: len(second.ids)] == second.ids


def test_a_template_that_strips_old_reasoning_starts_a_new_segment() -> None:
    talk = Talk(renderer(FORGETTING), "go")
    second = talk.reply((*encode("is it rock</think>paper"), END), "on")
    assert not second.merged
    assert "think" not in second.text
    assert second.ids == encode(second.text)
    assert talk.reply((*encode("paper"), END), "on").merged


def test_a_system_message_that_appears_later_starts_a_new_segment() -> None:
    talk = Talk(renderer(), "go")
    said = Said(talk.prompt, (*encode("rock"), END), "rock", ended=True)
    other = (Message("system", "Play well."), *talk.messages[1:], Message("assistant", "rock"), Message("user", "on"))
    assert not talk.renderer.prompt(other, said).merged


@pytest.mark.parametrize("template", [CHATML, FALLBACK_TEMPLATE])
def test_templates_that_write_something_after_the_end_token_are_merged_exactly(template: str) -> None:
    """ChatML and the fallback put a newline after the end of a turn. It is tokenised together with what follows."""
    talk = Talk(renderer(template), "go")
    end = talk.renderer.tokenizer.eos_token_id
    first = talk.prompt
    action = (*pieces("r", "o", "c", "k"), end)
    second = talk.reply(action, "on")
    assert second.merged
    assert second.ids[: len(first.ids) + 5] == first.ids + action
    assert talk.renderer.tokenizer.decode(second.ids) == second.text
    ending = talk.renderer.tokenizer.eos_token
    assert second.text.startswith(f"{first.text}rock{ending}\n")
    third = talk.reply(pieces("paper"), "on")  # cut: the template writes the end token
    assert third.merged
    assert third.ids[len(second.ids) :][:2] == (*pieces("paper"), end)
    assert talk.renderer.tokenizer.decode(third.ids) == third.text


def test_a_reply_that_ended_with_another_stop_token_than_the_templates_keeps_it() -> None:
    talk = Talk(renderer(CHATML), "go")
    first = talk.prompt
    action = (*pieces("rock"), END)  # <|end|> stops too, but ChatML writes <|im_end|>
    second = talk.reply(action, "on")
    assert second.merged
    assert second.ids[: len(first.ids) + 2] == first.ids + action


def test_a_template_that_refuses_gives_a_sentence() -> None:
    refusing = renderer("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ModelError, match=r"chat template does not accept the messages.*roles must alternate"):
        refusing.prompt((Message("user", "go"),))


# -- text -----------------------------------------------------------------------------------------------------------


renderer_once = renderer()


@calm
@given(st.text())
def test_any_text_survives_encoding_and_decoding(text: str) -> None:
    assert renderer_once.decode(renderer_once.encode_reply(text)) == (text, True)


@calm
@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text()), min_size=1, max_size=4))
def test_a_prompt_decodes_to_what_the_template_wrote(chat: list[tuple[str, str]]) -> None:
    prompt = renderer_once.prompt(tuple(Message(role, text) for role, text in chat))
    expected = "".join(f"<|{role}|>{text}<|end|>" for role, text in chat) + "<|assistant|>"
    assert prompt.text == expected
    assert TOKENIZER.decode(prompt.ids) == expected
    assert not prompt.merged


def test_decode_says_whether_a_reply_ended_itself() -> None:
    ours = renderer()
    assert ours.decode((*pieces("rock"), END)) == ("rock", True)
    assert ours.decode(pieces("rock")) == ("rock", False)
    assert ours.decode((END,)) == ("", True)
    assert ours.decode(()) == ("", False)
    assert ours.decode((*pieces("rock"), VOCABULARY - 1)) == ("rock", False)  # an id without a text


def test_equal_prompts_have_equal_digests_and_only_those() -> None:
    ours = renderer()
    one, two = (ours.prompt((Message("user", text),)) for text in ("go", "gone"))
    assert ours.prompt((Message("user", "go"),)).digest == one.digest != two.digest


def test_a_prompt_that_extends_another_has_the_digest_of_its_ids() -> None:
    """Only the new ids are hashed, and still it belongs to the same group as a prompt that was rendered as a whole."""
    ids, seen = (7, 9, 9, 5, 8, 8), (MediaSpan(1, 2, "ca7"), MediaSpan(4, 2, "d09"))
    for first in (0, 1, 3, 4, 6):
        media = tuple(span for span in seen if span.start < first)
        begin = Prompt(ids[:first], "", media=media)
        assert Prompt(ids, "", media=seen, begin=begin).digest == Prompt(ids, "", media=seen).digest
        assert Prompt(ids, "", begin=Prompt(ids[:first], "")).digest == Prompt(ids, "").digest


def test_promise_12_prompts_that_differ_in_a_picture_have_different_digests() -> None:
    """A grouping by prompt never puts them into one group."""
    made = [Prompt((7, 9, 9), "", media=media) for media in ((), (MediaSpan(1, 2, "ca7"),), (MediaSpan(1, 2, "d09"),))]
    assert len({p.digest for p in made}) == 3
    assert Prompt((7, 9, 9), "", media=(MediaSpan(1, 2, "ca7"),)) == made[1]


def test_promise_12_a_prompt_that_extends_another_keeps_its_pictures() -> None:
    talk = Talk(renderer(), "go")
    seen = (MediaSpan(1, 2, "ca7"),)
    talk.prompt = replace(talk.prompt, media=seen)
    after = talk.reply((*encode("rock"), END), "on")
    assert after.merged and after.media == seen


def test_a_reply_without_an_end_token_to_close_it_cannot_be_imitated() -> None:
    tokenizer: Any = copy.deepcopy(TOKENIZER)
    tokenizer.eos_token = None
    with pytest.raises(ModelError, match="no eos token"):
        Renderer(tokenizer, []).encode_reply("rock")


def test_a_model_without_a_chat_template_gets_the_fallback(tiny: Loaded, tmp_path: Path) -> None:
    save(tiny, tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    loaded = load(str(tmp_path), "cpu", torch.float32, seed=0)
    ours = Renderer(loaded.tokenizer, loaded.stop_ids)
    talk = Talk(ours, "go")
    opening = "system:\nPlay.<|end|>\nuser:\ngo<|end|>\nassistant:\n"
    assert talk.prompt.text == opening
    second = talk.reply((*encode("rock"), END), "on")
    assert second.merged
    assert second.text == f"{opening}rock<|end|>\nuser:\non<|end|>\nassistant:\n"


def test_the_caches_are_limited_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few long conversations, or a few pictures, take as much memory as many short conversations."""
    monkeypatch.setattr("interplay.agents.render._PROMPT_BYTES", 100_000)
    monkeypatch.setattr("interplay.agents.render._REPLY_BYTES", 10_000)
    for size, least, most in ((10, 20, 80), (1000, 2, 2)):
        tested = renderer()
        held = []
        for n in range(100):
            message = Message("user", f"{n} " + "x" * size)
            prompt = tested.prompt((message,))
            assert tested.prompt((message,)) is prompt
            held.append(len(tested._fresh))
        assert least <= max(held) <= most
        for n in range(40):
            tested.decode((n,) * 20)
            tested.replies((str(n), "yes"))
        assert 1 <= len(tested._decoded) < 10 and 1 <= len(tested._replies) < 10
    pictured = renderer()
    for n in range(20):
        pictured.prompt((Message("user", "?", media=(Media("image", bytes(40_000), str(n)),)),))
    assert len(pictured._fresh) == 2

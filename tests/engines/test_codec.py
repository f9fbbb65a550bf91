"""Text to ids and back, with and without a tokenizer's backend."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from interplay.engines.codec import TokenCodec
from interplay.models.tiny import build_tokenizer

TEXTS = ["", "go", "  two  spaces \n", "X<|im_end|>O", "1 + 2 = 3 .", "naïve 漢字 🙂"]


class Polite(PreTrainedTokenizerFast):
    """A tokenizer with code of its own around the backend."""

    def decode(self, *given: Any, **options: Any) -> str:
        return f"{super().decode(*given, **options)}, please"


@pytest.mark.parametrize("text", TEXTS)
def test_the_backend_gives_what_the_tokenizer_gives(text: str) -> None:
    tokenizer = build_tokenizer()
    codec = TokenCodec(tokenizer)
    assert codec.backend is not None
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert codec.encode(text) == tuple(ids)
    for given in (ids, tuple(ids), [*ids, tokenizer.eos_token_id]):
        wanted = tokenizer.decode(list(given), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert codec.decode(given) == wanted


def test_truncation_and_padding_that_a_tokenizer_was_saved_with_are_off() -> None:
    tokenizer = build_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=20)
    assert TokenCodec(tokenizer).encode("X O X O X O") == TokenCodec(build_tokenizer()).encode("X O X O X O")


def test_a_tokenizer_with_code_of_its_own_is_called_as_usual() -> None:
    polite = Polite(tokenizer_object=build_tokenizer().backend_tokenizer)
    codec = TokenCodec(polite)
    assert codec.backend is None
    assert codec.decode(codec.encode("go")) == "go, please"


@pytest.mark.parametrize("kind", [PreTrainedTokenizerFast, Polite])
def test_texts_that_are_encoded_together_have_the_ids_of_each_alone(kind: type[PreTrainedTokenizerFast]) -> None:
    codec = TokenCodec(kind(tokenizer_object=build_tokenizer().backend_tokenizer))
    assert codec.encode_all(TEXTS) == [codec.encode(text) for text in TEXTS]

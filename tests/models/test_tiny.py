"""`tiny` is an ordinary Hugging Face folder, and its tokenizer accepts any text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from interplay.errors import ModelError
from interplay.models import tiny as tiny_module
from interplay.models.load import Loaded
from interplay.models.locate import cache_folder, locate

TOKENIZER = tiny_module.build_tokenizer()


def test_tiny_is_a_plain_hugging_face_folder(tiny: Loaded) -> None:
    folder = Path(locate("tiny", 0))
    assert folder.parent == cache_folder()
    assert (folder / "config.json").is_file()
    assert (folder / "model.safetensors").is_file()
    assert "interplay" not in (folder / "config.json").read_text()
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert type(plain) is LlamaForCausalLM
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.chat_template == tiny_module.TEMPLATE
    ids = tokenizer("Play tic-tac-toe.", return_tensors="pt").input_ids
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, tiny.model(ids).logits, atol=1e-5, rtol=0)


def test_the_weights_are_a_function_of_the_seed(make_tiny: Callable[..., Loaded], tmp_path: Path) -> None:
    global_state = torch.random.get_rng_state()
    tiny_module.build(tmp_path / "again", seed=0)
    assert torch.equal(global_state, torch.random.get_rng_state()), "making a model draws nothing from the global RNG"
    one, other = make_tiny(0).model.state_dict(), make_tiny(1).model.state_dict()
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again").state_dict()
    assert one.keys() == other.keys() == again.keys()
    assert all(torch.equal(one[k], again[k]) for k in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_tiny_is_made_once_per_shape_and_seed(tiny: Loaded) -> None:
    before = (Path(locate("tiny", 0)) / "model.safetensors").stat().st_mtime_ns
    assert locate("tiny", 0) == locate("tiny-64x2", 0)
    assert (Path(locate("tiny", 0)) / "model.safetensors").stat().st_mtime_ns == before
    assert len({locate("tiny", 0), locate("tiny", 1), locate("tiny-32x1", 0)}) == 3


def test_a_shape_can_be_asked_for(make_tiny: Callable[..., Loaded]) -> None:
    config = make_tiny(0, "tiny-32x1").model.config
    assert (config.hidden_size, config.num_hidden_layers) == (32, 1)


@pytest.mark.parametrize("base", ["tiny-65536x64", "tiny-vl-65536x64x32", "tiny-av-65536x64", "tiny-whisper-65536x64"])
def test_a_model_that_is_larger_than_the_memory_is_refused(base: str) -> None:
    """`interplay models --save` and `play` estimate nothing, so the system ended them while the model was made."""
    with pytest.raises(ModelError, match=rf"model '{base}' needs more than 12,288 GiB, and this machine has .*smaller"):
        locate(base, 0)
    assert not list(cache_folder().glob("*65536*"))


@settings(max_examples=150)
@given(st.text())
def test_any_text_can_be_encoded_and_comes_back(text: str) -> None:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text
    assert all(0 <= i < tiny_module.VOCABULARY for i in ids)


@pytest.mark.parametrize("word", ["rock", " rock", "0", " 8", "cooperate", " X"])
def test_words_of_the_games_are_single_tokens(word: str) -> None:
    assert len(TOKENIZER(word, add_special_tokens=False)["input_ids"]) == 1


def test_every_special_token_has_an_id_of_its_own() -> None:
    assert TOKENIZER.convert_tokens_to_ids(list(tiny_module.SPECIAL)) == list(range(len(tiny_module.SPECIAL)))
    assert len(TOKENIZER) <= tiny_module.VOCABULARY

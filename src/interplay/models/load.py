"""Loads a model with its tokenizer and our attention function, or refuses it and says why."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMultimodalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from interplay.errors import ModelError
from interplay.models import senses
from interplay.models.attention import EYE, Causal, using
from interplay.models.attention import NAME as ATTENTION
from interplay.models.families import Family, family_of
from interplay.models.locate import config_by_name, locate
from interplay.models.shape import cache_shape, decoder_of

# For models without a chat template. It never rewrites earlier text and needs no special tokens but the end token.
FALLBACK_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)
# The same for models that see or hear: the pictures and sounds of a message come before its text.
MEDIA_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:\n{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% else %}{{ placeholder }}{% endif %}{% endfor %}"
    "{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}assistant:\n{% endif %}"
)


@dataclass(frozen=True)
class Loaded:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]

    @property
    def senses(self) -> senses.Senses | None:
        """What the model sees or hears with; None for a text model."""
        return senses.of(self.model)


def load(base: str, device: str, dtype: torch.dtype, seed: int) -> Loaded:
    """The model in evaluation mode (it never uses dropout) with its tokenizer, ready for engine and learner. On the
    device "meta" it has its shape and no weights, for a process that only renders prompts."""
    config, source = read_config(base, seed), locate(base, seed)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise _unloadable(base, error, "its tokenizer is missing or broken") from None
    _refuse_unsupported(base, config)
    family = family_of(base, config)
    try:
        model = _weightless(base, source, config, dtype) if device == "meta" else _load_weights(source, dtype, family)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unloadable(base, error, "its weights are missing or broken") from None
    model.to(device).eval()
    if device != "meta":
        _refuse_other_attention(base, model)
        _refuse_altered_logits(base, model)
    if family is not None:
        tokenizer = _with_senses(base, source, model, family)
    elif tokenizer.chat_template is None:
        tokenizer.chat_template = FALLBACK_TEMPLATE
    stop_ids = _stop_ids(model, tokenizer)
    if not stop_ids:
        raise ModelError(
            f"model '{base}' has no end token, so its replies would never end; expected eos_token in its "
            "tokenizer_config.json, or eos_token_id in its generation_config.json."
        )
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(stop_ids[0])
    return Loaded(model, tokenizer, stop_ids)


def _load_weights(source: str, dtype: torch.dtype, family: Family | None) -> Any:
    if family is None:
        return AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, attn_implementation=ATTENTION, trust_remote_code=False
        )
    return _attending(AutoModelForMultimodalLM.from_pretrained(source, dtype=dtype, trust_remote_code=False))


def _attending(model: Any) -> Any:
    """Make the language part of a model that sees or hears use our attention, which is causal. Its eye or ear uses
    torch's attention, or `EYE` in Qwen's models."""
    windows = model.config.model_type in ("qwen2_vl", "qwen2_5_vl")
    eye = {
        part: EYE if windows else "sdpa" for part in ("vision_config", "audio_config") if hasattr(model.config, part)
    }
    model.set_attn_implementation({"text_config": ATTENTION, **eye, "": "sdpa"})
    for module in model.modules():
        if isinstance(module, nn.Conv3d) and module.kernel_size == module.stride:
            module.__class__ = Patches
    return model


class Patches(nn.Conv3d):
    """A convolution whose kernel covers each patch once, as a matrix product. torch's convolution is slow for the many
    small patches of Qwen's eye."""

    def forward(self, input: Tensor) -> Tensor:
        found = nn.functional.linear(input.flatten(1), self.weight.flatten(1), self.bias)
        return found[:, :, None, None, None]


def blank(base: str, config: Any, dtype: torch.dtype) -> PreTrainedModel:
    """A model of this shape with random weights. If torch's default device is meta, it has no weights."""
    if family_of(base, config) is None:
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=ATTENTION)
    found: PreTrainedModel = _attending(AutoModelForMultimodalLM.from_config(config, dtype=dtype))
    return found


def _weightless(base: str, source: str, config: Any, dtype: torch.dtype) -> Any:
    """The model with no weights, but with the names and the end tokens that `from_pretrained` would give it."""
    with torch.device("meta"):
        model = blank(base, config, dtype)
    model.config.name_or_path = source
    with suppress(OSError):  # if the file is missing, the end token is that of the tokenizer
        model.generation_config = GenerationConfig.from_pretrained(source)
    return model


def _with_senses(base: str, source: str, model: Any, family: Family) -> PreTrainedTokenizerBase:
    """Attach the model's senses to it; returns the processor's tokenizer, which knows the placeholders."""
    from interplay.models.processors import load_processor  # imports much that text models do not need

    try:
        processor = load_processor(source, model.config.model_type)
        tokenizer: PreTrainedTokenizerBase = processor.tokenizer
    except (OSError, ValueError, ImportError, AttributeError) as error:
        raise _unloadable(base, error, "its processor is missing or broken") from None
    sense = senses.Senses(model, processor, family)
    senses.attach(model, sense)
    if getattr(processor, "chat_template", None) is not None:
        tokenizer.chat_template = processor.chat_template
    elif tokenizer.chat_template is None:
        tokenizer.chat_template = MEDIA_TEMPLATE.replace("{{ placeholder }}", sense.token)
    return tokenizer


def read_config(base: str, seed: int) -> Any:
    """A model's shape, without its weights."""
    if (made := config_by_name(base)) is not None:
        return made
    try:
        return AutoConfig.from_pretrained(locate(base, seed), trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise _unloadable(base, error) from None


def _unloadable(base: str, error: Exception, what: str = "") -> ModelError:
    if "trust_remote_code" in str(error):
        return ModelError(
            f"model '{base}' contains its own code, which would run on this machine, but Interplay does not run code "
            "of models; expected a model whose class is part of transformers."
        )
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ModelError(
        f"model '{base}' cannot be loaded{': ' if what else ''}{what} ({reason}); expected tiny, smollm2, a Hugging "
        "Face folder, a .gguf file or a hub name that can be reached."
    )


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = set(configured if isinstance(configured, list) else [configured])
    ids.add(tokenizer.eos_token_id)
    return tuple(sorted(i for i in ids if i is not None))


def _refuse_unsupported(base: str, config: Any) -> None:
    text = config.get_text_config()
    odd = set(getattr(text, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if odd:
        raise ModelError(
            f"model '{base}' has layers of type {', '.join(sorted(odd))}; expected full attention or sliding windows."
        )
    rope = getattr(text, "rope_parameters", None) or {}
    limit = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") == "longrope" and text.max_position_embeddings > limit:
        raise ModelError(
            f"model '{base}' uses other rotary angles when a sequence is longer than {limit} tokens (longrope), so "
            "cached keys would become wrong; expected angles that do not depend on the length."
        )


class _Witness:
    """A layout that attends as `Causal` does and records for each layer: (key-value heads, key size, value size)."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, int, int]] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        self.seen[layer] = (k.shape[1], k.shape[3], v.shape[3])
        return Causal().attend(layer, q, k, v, scale, window)


@torch.no_grad()
def _refuse_other_attention(base: str, model: PreTrainedModel) -> None:
    """Refuse a model unless all its layers use our attention function, with heads of the same number and size: the
    cache assumes this."""
    witness = _Witness()
    with using(witness):
        decoder_of(model)(input_ids=torch.arange(1, 5, device=model.device).unsqueeze(0), use_cache=False)
    count = model.config.get_text_config().num_hidden_layers
    if set(witness.seen) != set(range(count)):
        raise ModelError(
            f"only {len(witness.seen)} of the {count} layers of model '{base}' ({type(model).__name__}) use "
            "transformers' attention interface; expected softmax attention in every layer, and no linear attention."
        )
    _, heads, size = cache_shape(model)
    if set(witness.seen.values()) != {(heads, size, size)}:
        raise ModelError(
            f"model '{base}' ({type(model).__name__}) has keys and values of different sizes, as in latent attention; "
            f"expected {heads} heads of {size} in every layer."
        )


@torch.no_grad()
def _refuse_altered_logits(base: str, model: PreTrainedModel) -> None:
    """Refuse a model that scales or caps its logits after the output layer, where engine and learner read them."""
    ids = torch.arange(1, 5, device=model.device).unsqueeze(0)
    plain = model.get_output_embeddings()(decoder_of(model)(input_ids=ids, use_cache=False).last_hidden_state)
    if not torch.allclose(model(input_ids=ids, use_cache=False).logits.float(), plain.float(), rtol=1e-2, atol=1e-2):
        raise ModelError(
            f"model '{base}' ({type(model).__name__}) scales or caps its logits after the output layer, which "
            "Interplay does not support yet; expected unchanged logits, as in Llama or Qwen models."
        )

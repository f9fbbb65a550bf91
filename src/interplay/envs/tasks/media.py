"""Pictures and sounds in columns of a user's own rows, as PNG and WAV files beside the prepared rows.

A column holds a path beside the file of rows, the bytes of a file, or both in a table with `bytes` and `path`, as the
image and audio columns of Hugging Face data sets do. Files of other kinds are converted: pictures with Pillow, sounds
with soundfile.
"""

from __future__ import annotations

import io
import wave
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from interplay.envs.tasks.data import Prepared
from interplay.errors import ConfigError, DataError
from interplay.types import Media, MediaKind

_SOUNDS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"FORM")
_PNG = b"\x89PNG\r\n\x1a\n"


def medium(value: Any, where: str, folder: Path | None) -> Media:
    """The picture or sound in a column. A path is relative to `folder`."""
    data = _bytes(value, where, folder)
    if data.startswith(_SOUNDS):
        return Media("audio", _wav(data, where))
    return Media("image", data if data.startswith(_PNG) else _png(data, where))


def _bytes(value: Any, where: str, folder: Path | None) -> bytes:
    if isinstance(value, Mapping):  # how Hugging Face stores images and audio
        value = value["bytes"] if value.get("bytes") else value.get("path")
    if isinstance(value, bytes) and value:
        return value
    if isinstance(value, str) and value and folder is not None:
        try:
            return (folder / value).read_bytes()
        except OSError as error:
            raise DataError(
                f"{where} names the file '{value}', which cannot be read ({error.strerror}); expected a path relative "
                "to the file of rows."
            ) from None
    raise DataError(
        f"{where} has a {type(value).__name__}; expected a picture or a sound: the path of its file, its bytes, or a "
        "table with `bytes` or `path`."
    )


def _png(data: bytes, where: str) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError("pictures that are not PNG files need Pillow: pip install 'interplay[senses]'.") from None
    out = io.BytesIO()
    try:
        Image.open(io.BytesIO(data)).convert("RGB").save(out, "PNG")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{where} cannot be read as a picture or a sound ({error}).") from None
    return out.getvalue()


def _wav(data: bytes, where: str) -> bytes:
    """A WAV file with 16-bit samples: the same bytes if they are that already."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            if file.getsampwidth() == 2:
                return data
    except (wave.Error, EOFError):
        pass
    try:
        import soundfile
    except ImportError:
        raise ConfigError(
            f"{where} has a sound that is no WAV file of 16-bit samples, which needs soundfile: pip install "
            "'interplay[senses]'."
        ) from None
    out = io.BytesIO()
    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
        soundfile.write(out, samples, rate, "PCM_16", format="WAV")
    except (RuntimeError, TypeError, ValueError) as error:  # soundfile's errors are RuntimeErrors
        raise DataError(f"{where} cannot be read as a sound ({error}).") from None
    return out.getvalue()


def loaded(prepared: Prepared, names: list[list[str]]) -> tuple[Media, ...]:
    """The media of a prepared row, by kind and file name."""
    return tuple(_loaded(prepared.file(name), "audio" if kind == "audio" else "image") for kind, name in names)


@lru_cache(maxsize=256)
def _loaded(file: Path, kind: MediaKind) -> Media:
    return Media(kind, file.read_bytes())

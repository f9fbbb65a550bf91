"""Pictures and sounds in columns of a user's own rows, as PNG and WAV files beside the prepared rows.

A column holds a path beside the file of rows, the bytes of a file, or both in a table with `bytes` and `path`, as the
image and audio columns of Hugging Face data sets do. Every file is decoded once, so that a broken one is found here and
not in a run. Files of other kinds are converted: pictures with Pillow, sounds with soundfile.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from interplay.decode import decode_sound, upright_png
from interplay.envs.tasks.data import Prepared
from interplay.errors import ConfigError, DataError
from interplay.types import Media, MediaKind

_SOUNDS = (b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"FORM")


class UnreadableMedia(DataError):
    """The bytes of a picture or a sound cannot be decoded."""


def medium(value: Any, where: str, folder: Path | None) -> Media:
    """The picture or sound in a column. A path is relative to `folder`."""
    data = _bytes(value, where, folder)
    is_sound = data.startswith(_SOUNDS) and data[8:12] != b"WEBP"  # WebP pictures begin with RIFF too
    try:
        return Media("audio", _wav(data, where)) if is_sound else Media("image", upright_png(data))
    except ValueError as error:
        named = value.get("path") if isinstance(value, Mapping) else value
        file = f"the file '{named}'" if isinstance(named, str) and named else "a file"
        kind = "sound" if is_sound else "picture"
        raise UnreadableMedia(f"{where} has {file}, which cannot be read as a {kind} because {error}.") from None


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


def _wav(data: bytes, where: str) -> bytes:
    """A WAV file with 16-bit samples: the same bytes if they are that already."""
    try:
        decode_sound(data)
        return data
    except ValueError as error:
        wrong = error
    try:
        import soundfile
    except ImportError:
        raise ConfigError(
            f"{where} has a sound that cannot be read without soundfile because {wrong}; pip install "
            "'interplay[senses]', which converts it to a WAV file of 16-bit samples."
        ) from None
    out = io.BytesIO()
    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="int16")
    except (RuntimeError, TypeError, ValueError) as error:  # soundfile's errors are RuntimeErrors
        reason = getattr(error, "error_string", None) or "its bytes are not those of a sound"
        raise ValueError(f"it is cut off or damaged ({reason.rstrip('.')})") from None
    soundfile.write(out, samples, rate, "PCM_16", format="WAV")
    return out.getvalue()


def loaded(prepared: Prepared, names: list[list[str]]) -> tuple[Media, ...]:
    """The media of a prepared row, by kind and file name."""
    return tuple(_loaded(prepared.file(name), "audio" if kind == "audio" else "image") for kind, name in names)


@lru_cache(maxsize=256)
def _loaded(file: Path, kind: MediaKind) -> Media:
    return Media(kind, file.read_bytes())

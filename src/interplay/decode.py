"""Decodes files of pictures and sounds. Everything that reads such a file uses these functions, so that a data set, a
model and a person at a terminal get the same picture.

A file that cannot be decoded raises a ValueError, whose text says why in words that follow "cannot be read because".
"""

from __future__ import annotations

import io
import struct
import wave
from typing import Any

from interplay.errors import ConfigError

PNG = b"\x89PNG\r\n\x1a\n"  # the first bytes of every PNG file
_ORIENTATION = 0x0112  # the EXIF tag that says how to turn a picture
_TURNS = {  # its values, and the names of Pillow's operations
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip


def decode_picture(data: bytes) -> Any:
    """A picture file as an RGB image (of Pillow) as people see it: turned as its EXIF data say, on white where it is
    transparent, and with 16-bit greys scaled to 8 bits."""
    return _decoded(data)[0]


def upright_png(data: bytes) -> bytes:
    """The picture as a PNG file: the same bytes if they are that already and the picture need not be turned."""
    image, turned = _decoded(data)
    if data.startswith(PNG) and not turned:
        return data
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _decoded(data: bytes) -> tuple[Any, bool]:
    """The picture as people see it, and whether it had to be turned for that."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ConfigError("reading pictures needs Pillow: pip install 'interplay[senses]'.") from None
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
        # Pillow's exif_transpose also writes the EXIF data again, which fails where another part of them is broken.
        turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1))
        return _opaque(image.transpose(Image.Transpose[turn]) if turn else image), turn is not None
    except UnidentifiedImageError:
        raise ValueError("its bytes are not those of a picture" if data else "it is empty") from None
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise ValueError(f"it has more than {most:,} pixels, the most that Pillow reads") from None
    except (OSError, SyntaxError, ValueError, EOFError, RuntimeError, struct.error, TypeError) as error:
        raise ValueError(f"it is cut off or damaged ({_reason(error)})") from None


def _opaque(image: Any) -> Any:
    from PIL import Image

    if image.mode.startswith("I"):
        import numpy as np

        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    if "A" in image.mode or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def decode_sound(data: bytes) -> tuple[bytes, int, int]:
    """The frames of a WAV file with 16-bit samples, the number of channels, and the frames per second."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            width, channels, count = file.getsampwidth(), file.getnchannels(), file.getnframes()
            frames, rate = file.readframes(count), file.getframerate()
    except (wave.Error, EOFError, RuntimeError) as error:
        if not data.startswith(b"RIFF"):
            raise ValueError("its bytes are not those of a WAV file" if data else "it is empty") from None
        raise ValueError(f"it is cut off or damaged ({_reason(error)})") from None
    if width != 2:
        raise ValueError(f"it has {8 * width} bits in each sample, and 16 bits are expected")
    if len(frames) != 2 * channels * count:
        raise ValueError(f"it is cut off: it has {len(frames) // (2 * channels):,} of its {count:,} frames")
    if rate <= 0:
        raise ValueError(f"it has {rate} frames per second")
    return frames, channels, rate


def _reason(error: Exception) -> str:
    """What a library says about a file. An EOFError says nothing."""
    return str(error).strip().rstrip(".") or "the file ends too early"

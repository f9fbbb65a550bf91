"""Turns a picture or a sound into ids of a prompt and input of a model's eye or ear, with the model's own processor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from interplay.decode import decode_picture, decode_sound
from interplay.errors import ModelError
from interplay.types import Media

_TEXT = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True)
class Perceived:
    """`ids` stand for the medium in a prompt, `inputs` go to the eye or ear. `grid` is the height and width of a
    picture in tokens, for families whose positions need it."""

    ids: tuple[int, ...]
    inputs: dict[str, Tensor]
    grid: tuple[int, int] | None = None


def perceive(processor: Any, token: str, media: Media, max_pixels: int = 0) -> Perceived:
    """Process one medium; `token` is the placeholder that the chat template writes for it."""
    if media.kind == "image":
        image = picture(media, max_pixels)
        try:
            found = processor(text=[token], images=[image], **_OPTIONS)
        except ValueError as error:
            raise ModelError(
                f"the model's processor refuses a picture of {image.width} × {image.height} pixels ({error}); expected "
                "another size or shape."
            ) from None
    elif getattr(processor, "image_processor", None) is not None:
        side = processor.image_processor.size["height"]
        found = processor(text=[token], images=[spectrogram(media, side)], **_OPTIONS)
    else:
        rate = processor.feature_extractor.sampling_rate
        found = processor(text=[token], audio=[sound(media, rate)], sampling_rate=rate, **_OPTIONS)
    inputs = {name: value for name, value in found.items() if isinstance(value, Tensor) and name not in _TEXT}
    grid = None
    if "image_grid_thw" in inputs:
        _, height, width = inputs["image_grid_thw"][0].tolist()
        merge = processor.image_processor.merge_size
        grid = (height // merge, width // merge)
    return Perceived(tuple(found["input_ids"][0].tolist()), inputs, grid)


_OPTIONS: dict[str, Any] = {"return_tensors": "pt", "add_special_tokens": False}


def picture(media: Media, max_pixels: int = 0) -> Any:
    """A picture file as an RGB image of at most `max_pixels` (0: any size)."""
    try:
        image = decode_picture(media.data)
    except ValueError as error:
        raise ModelError(
            f"the picture {media.file} cannot be read because {error}; expected a complete PNG file."
        ) from None
    width, height = image.size
    return image.resize(fitting(width, height, max_pixels)) if max_pixels else image


def fitting(width: int, height: int, max_pixels: int) -> tuple[int, int]:
    """The size of a picture that has at most `max_pixels`, with the same ratio of its sides as far as whole pixels
    allow. No side is less than 1."""
    scale = min(1.0, (max_pixels / (width * height)) ** 0.5)
    short, long = sorted((width, height))
    less = max(1, int(short * scale))
    more = max(1, min(int(long * scale), max_pixels // less))
    return (less, more) if width <= height else (more, less)


def sound(media: Media, rate: int) -> np.ndarray:
    """A WAV file of 16-bit samples as one channel of numbers from -1 to 1, at `rate` samples a second."""
    try:
        frames, channels, given = decode_sound(media.data)
    except ValueError as error:
        raise ModelError(
            f"the sound {media.file} cannot be read because {error}; expected a complete WAV file of 16-bit samples."
        ) from None
    samples = np.frombuffer(frames, "<i2").reshape(-1, channels).mean(1).astype(np.float32) / 32768
    if given == rate:
        return samples
    from math import gcd

    from scipy.signal import resample_poly

    common = gcd(given, rate)
    return np.asarray(resample_poly(samples, rate // common, given // common), np.float32)


def spectrogram(media: Media, side: int) -> np.ndarray:
    """A sound as a square picture: the strength of `side` pitches from 100 to 3,600 Hz (the highest on top) over time,
    from dark (60 dB below the loudest) to bright. The whole sound fills the width."""
    rate, size = 8_000, 512
    samples = np.pad(sound(media, rate), size // 2)
    starts = np.linspace(0, len(samples) - size, side).astype(int)
    frames = samples[starts[:, None] + np.arange(size)] * np.hanning(size)
    power = np.abs(np.fft.rfft(frames)) ** 2  # [time, frequency]
    edges = np.geomspace(100, 3_600, side + 1) * size / rate
    bands = [power[:, int(low) : max(int(high), int(low) + 1)].mean(1) for low, high in pairwise(edges)]
    level = 10 * np.log10(np.stack(bands[::-1]) + 1e-12)
    bright = np.clip((level - level.max()) / 60 + 1, 0, 1) * 255 * power.any()  # silence is dark
    return np.repeat(bright.astype(np.uint8)[:, :, None], 3, 2)

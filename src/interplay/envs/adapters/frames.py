"""Shows games of Gymnasium and PettingZoo as pictures: a rendered frame is made smaller and becomes a PNG picture."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from interplay.envs.adapters.adapter import AdapterOptions
from interplay.envs.picture import png
from interplay.errors import ConfigError
from interplay.types import Media, MediaKind


class FrameOptions(AdapterOptions):
    """Options of games that can be drawn."""

    view: Literal["text", "image", "both"] = Field(
        "text", description="how the position is shown: in words, as a picture, or both"
    )
    pixels: int = Field(224, ge=8, le=2048, description="longest side of the picture")


def needs(options: Mapping[str, Any]) -> frozenset[MediaKind]:
    return frozenset({"image"} if options.get("view") == "image" else ())


def headless() -> None:
    """Let pygame draw without a screen, unless the user has chosen a video driver."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def is_picture(value: Any) -> bool:
    """Whether an observation is a picture: rows of pixels with three bytes each."""
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3


def frame(value: Any, game: str, pixels: int) -> Media:
    """A frame as a picture whose longest side is at most `pixels`. Each pixel is the mean of the pixels that it
    replaces, or of some of them if there are many."""
    if not is_picture(value):
        shape = getattr(value, "shape", type(value).__name__)
        raise ConfigError(
            f"env.view asks for pictures, and '{game}' renders {shape}; expected a game that can be rendered as "
            'rgb_array, or env.view = "text".'
        )
    height, width = value.shape[:2]
    scale = max(height, width) / pixels
    if scale > 1:
        value = value[:: int(max(1, scale // 4)), :: int(max(1, scale // 4))]
        value = _shrunk(_shrunk(value, 0, max(1, round(height / scale))), 1, max(1, round(width / scale)))
        height, width = value.shape[:2]
    return Media("image", png(width, height, (row.tobytes() for row in np.ascontiguousarray(value))))


def _shrunk(value: Any, axis: int, size: int) -> Any:
    """The array with `size` entries along an axis: means of parts of nearly equal length."""
    starts = np.linspace(0, value.shape[axis], size + 1).astype(int)
    total = np.add.reduceat(value.astype(np.uint32), starts[:-1], axis)
    counts = np.diff(starts).reshape([-1 if n == axis else 1 for n in range(3)])
    return (total // counts).astype(np.uint8)

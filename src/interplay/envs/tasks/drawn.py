"""Draws a table as a picture, with Pillow. Numbers are aligned to the right."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from interplay.errors import ConfigError
from interplay.execution.query import Cell

_EDGE = 4  # pixels between a cell's text and its lines
_INK, _PAPER, _HEAD, _LINE = (20, 20, 20), (255, 255, 255), (225, 232, 245), (170, 170, 170)


def drawn(header: Sequence[str], rows: Sequence[Sequence[Cell]], limit: int, size: int = 12) -> bytes:
    """A PNG picture of the table, with `limit` of its rows. `size` is the height of the letters in pixels."""
    shown = [tuple("" if cell is None else str(cell) for cell in row) for row in rows[:limit]]
    numbers = tuple(all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(header)))
    more = f"… ({len(rows)} rows)" if len(rows) > limit else ""
    return _drawn((tuple(header), *shown), numbers, more, size)


@lru_cache(maxsize=256)
def _drawn(lines: tuple[tuple[str, ...], ...], numbers: tuple[bool, ...], more: str, size: int) -> bytes:
    image, draw, font = _pillow()
    letters = font.load_default(size)
    wide = [max(int(letters.getlength(line[i])) for line in lines) + 2 * _EDGE + 1 for i in range(len(numbers))]
    tall = size + 2 * _EDGE + 1
    canvas = image.new("RGB", (sum(wide) + 1, tall * (len(lines) + bool(more)) + 1), _PAPER)
    pen = draw.Draw(canvas)
    for n, line in enumerate(lines):
        left, top = 0, n * tall
        for text, width, number in zip(line, wide, numbers, strict=True):
            box = (left, top, left + width, top + tall)
            pen.rectangle(box, fill=None if n else _HEAD, outline=_LINE)
            at = left + width - _EDGE - int(letters.getlength(text)) if number and n else left + _EDGE
            pen.text((at, top + _EDGE - size // 6), text, fill=_INK, font=letters)
            left += width
    if more:
        pen.text((_EDGE, len(lines) * tall + _EDGE - size // 6), more, fill=_INK, font=letters)
    out = io.BytesIO()
    canvas.save(out, "PNG")
    return out.getvalue()


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ConfigError("env.view draws the table with Pillow: pip install 'interplay[senses]'.") from None
    return Image, ImageDraw, ImageFont

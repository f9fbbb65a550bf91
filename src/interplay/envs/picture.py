"""Draws pictures for environments, as PNG files. It needs only the standard library.

A board is drawn cell by cell. Each symbol has a `Look`, and every cell has the same size in pixels.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Look:
    """How a cell is drawn: a shape in `colour` on `ground`."""

    ground: Colour
    colour: Colour = (0, 0, 0)
    shape: Literal["", "disc", "square", "ring"] = ""


def png(width: int, height: int, lines: Iterable[bytes]) -> bytes:
    """Return a PNG file with `height` lines. Each line has `width` pixels of three bytes."""

    def part(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + line for line in lines))
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", body) + part(b"IEND", b"")


def draw(board: str, looks: Mapping[str, Look], cell: int) -> bytes:
    """Draw a board as a PNG picture. `board` has one line for each row, with spaces between the symbols."""
    rows = [line.split() for line in board.splitlines()]
    lines = [
        b"".join(line) for row in rows for line in zip(*(_tile(looks[symbol], cell) for symbol in row), strict=True)
    ]
    return png(cell * len(rows[0]), cell * len(rows), lines)


@lru_cache(maxsize=256)
def _tile(look: Look, cell: int) -> tuple[bytes, ...]:
    """Return the lines of pixels of one cell."""
    middle = (cell - 1) / 2
    out = []
    for y in range(cell):
        line = bytearray()
        for x in range(cell):
            far = ((x - middle) ** 2 + (y - middle) ** 2) ** 0.5 / cell
            inside = {
                "": False,
                "disc": far <= 0.4,
                "ring": 0.25 <= far <= 0.45,
                "square": max(abs(x - middle), abs(y - middle)) <= 0.35 * cell,
            }[look.shape]
            line += bytes(look.colour if inside else look.ground)
        out.append(bytes(line))
    return tuple(out)

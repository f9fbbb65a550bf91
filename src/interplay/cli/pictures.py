"""Shows the pictures and sounds of a message to a person: in a terminal with colours, or as files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.text import Text

from interplay.decode import decode_picture
from interplay.rollout.media import MediaFolder
from interplay.types import Media

WIDEST = 64  # characters of a picture in the terminal; a character is one pixel wide and two high


def show(console: Console, media: Sequence[Media]) -> None:
    """Draw pictures with half blocks if the terminal has enough colours; otherwise write a file and print its path."""
    drawn = console.is_terminal and console.color_system in ("256", "truecolor") and find_spec("PIL") is not None
    for one in media:
        if drawn and one.kind == "image":
            console.print(blocks(one.data), soft_wrap=True)
        else:
            store = MediaFolder(_folder())
            store.put([one])
            console.print(
                f"{one.kind}: {store.path(one.kind, one.digest)}", highlight=False, markup=False, soft_wrap=True
            )


def blocks(data: bytes) -> Text:
    """A picture as lines of half blocks, each with the colours of two pixels."""
    picture = decode_picture(data)
    if picture.width > WIDEST:
        picture = picture.resize((WIDEST, max(2, picture.height * WIDEST // picture.width)))
    pixels, (width, height) = picture.load(), picture.size
    assert pixels is not None
    out = Text()
    for y in range(0, height, 2):
        for x in range(width):
            upper, lower = pixels[x, y], pixels[x, min(y + 1, height - 1)]
            out.append("▀", f"rgb{_colour(upper)} on rgb{_colour(lower)}")
        out.append("\n")
    return out


def _colour(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return "({},{},{})".format(*pixel)


@cache
def _folder() -> Path:
    """Where files of this process go; they stay until the person deletes them."""
    return Path(tempfile.mkdtemp(prefix="interplay-"))

"""A person who plays sees what the environment shows."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from interplay.cli.pictures import blocks, show
from interplay.envs.picture import Look, draw
from interplay.types import Media

LOOKS = {"a": Look((255, 0, 0)), "b": Look((0, 0, 255))}
BOARD = Media("image", draw("a b\nb a", LOOKS, 2))


def test_a_terminal_with_colours_shows_the_picture() -> None:
    pytest.importorskip("PIL")
    out = io.StringIO()
    show(Console(file=out, force_terminal=True, color_system="truecolor", width=80), [BOARD])
    assert out.getvalue().count("▀") >= 2 and "38;2;255;0;0" in out.getvalue() and "48;2;0;0;255" in out.getvalue()
    assert blocks(BOARD.data).plain == "▀▀▀▀\n▀▀▀▀\n"


def test_large_pictures_fit_the_terminal() -> None:
    pytest.importorskip("PIL")
    assert {len(line) for line in blocks(draw("a b", LOOKS, 64)).plain.splitlines()} == {64}


def test_elsewhere_a_file_is_written_and_named() -> None:
    out = io.StringIO()
    hum = Media("audio", b"hum")
    show(Console(file=out, force_terminal=False, width=200), [BOARD, hum])
    picture, sound = (line.split(": ", 1) for line in out.getvalue().splitlines())
    assert (picture[0], Path(picture[1]).read_bytes()) == ("image", BOARD.data)
    assert (sound[0], Path(sound[1]).read_bytes()) == ("audio", b"hum") and sound[1].endswith(".wav")

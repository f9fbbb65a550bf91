"""Programs that do what a model may have written: each tries to harm the machinery or another run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from commands import talk


def nests(row: dict[str, Any]) -> str:
    """Folders that are deeper than Python recurses, with paths that are longer than the kernel accepts."""
    talk()
    for _ in range(1200):
        os.mkdir("deep" * 10)
        os.chdir("deep" * 10)
    return "nested"


def fills(row: dict[str, Any]) -> str:
    """More than it may write, into a file that it has deleted."""
    talk()
    written = 0
    with open("gone", "wb", buffering=0) as file:
        os.unlink("gone")
        try:
            while written < 64 << 20:
                written += file.write(b"x" * (1 << 20))
        except OSError:
            return f"{written >> 20} MB"
    return "ESCAPED"


FORGED = {
    "nonsense": b"\xff\xfe{",
    "half": b'{"result": ',
    "no object": b"[1, 2]",
    "no result": b"{}",
    "another run": b'{"id": 0, "result": "forged", "imported": []}',
    "machinery": b'{"crash": {"kind": "x", "words": "y", "place": "z", "machinery": true}}',
    "more": b'{"crash": {"kind": "x", "words": "y", "place": "z", "other": 1}}',
    "imports": b'{"result": "fine", "imported": ["unittest.__main__", "asyncio.__main__", 5, null]}',
    "brackets": b'{"result": ' + b"[" * 100_000 + b"]" * 100_000 + b', "imported": []}',
}


def forges(row: dict[str, Any]) -> None:
    """Write a result of its own to every descriptor that is open, and leave."""
    said = FORGED[talk()]
    for fd in range(3, 1024):
        try:
            os.write(fd, said)
        except OSError:
            continue
    os._exit(0)


def deep(row: dict[str, Any]) -> Any:
    found: list[Any] = []
    for _ in range(900):
        found = [found]
    talk()
    return found


def half_a_character(row: dict[str, Any]) -> str:
    """What a model wrote as JSON can name half of a surrogate pair."""
    return talk(text=json.loads('"a \\ud800 b"'))


if __name__ == "__main__":
    talk()
    Path("x").write_text("x")
    print("[" * 100_000)

"""Reads how a run of an outside program ended. It uses only the standard library, because `worker.py` imports it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def place_of(frames: Sequence[tuple[str, int | None]]) -> str:
    """The innermost line that is not in a library, as file:line."""
    own = [f for f in frames if "site-packages" not in f[0] and "/lib/python" not in f[0]]
    own = [f for f in own if os.path.dirname(f[0]) != HERE]
    found = own or frames
    return f"{found[-1][0]}:{found[-1][1]}" if found else "an unknown place"


def told_by(data: bytes | bytearray) -> dict:
    """What a run reported about its end. The run may have executed what a model wrote, so only the known fields are
    read: a run cannot report for another run, end this process, or declare its own failure a failure of the system."""
    try:
        said = json.loads(data)
        if "crash" in said:
            return {"crash": {name: str(said["crash"][name])[:500] for name in ("kind", "words", "place")}}
        imported = [str(name) for name in said["imported"]]
        return {"result": said["result"], "imported": imported, "again": said.get("again")}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {"crash": {"kind": "UnreadableResult", "words": "its result is no JSON", "place": "an unknown place"}}


def text_of(how: dict) -> str:
    """A report as a text inside the line that is sent. So the number of the run can be read even if its result is
    nested too deeply to be parsed."""
    try:
        return json.dumps(how)
    except RecursionError:
        return "["


def crash_of(code: int, err: str) -> dict[str, str]:
    """The crash of a command, from the traceback on standard error if there is one."""
    lines = [line for line in err.strip().splitlines() if line.strip()]
    frames = [(m[1], int(m[2])) for m in _PLACE.finditer(err)]
    kind, _, words = (lines[-1] if lines else "").partition(":")
    if not frames or not re.fullmatch(r"[\w.]+", kind):
        kind, words = f"exit code {code}", lines[-1] if lines else ""
    return {"kind": kind.rpartition(".")[2], "words": words.strip()[:500], "place": place_of(frames)}

"""Values that the referee and a program send each other: JSON, with a one-letter tag for what JSON does not have.

Plain values are sent by their contents, whatever their class claims to be. All other values stay where they are, and
the other side gets a number that stands for them.
"""

from __future__ import annotations

import builtins
import contextlib
import itertools
import json
import os
import re
import struct
from collections.abc import Callable
from typing import Any

LARGEST = 1 << 27  # the largest number of bytes in one message
LONGEST = 100_000  # the largest number of values that are taken from an iterator
_LAZY = (range, map, filter, zip, enumerate, reversed)


Ready = Callable[[int], None]  # waits until something can be read or written there, or raises


def exactly(fd: int, size: int, ready: Ready | None = None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if ready is not None:
            ready(fd)
        part = os.read(fd, min(size - len(parts), 1 << 16))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def get(fd: int, ready: Ready | None = None) -> Any:
    size = struct.unpack("I", exactly(fd, 4, ready))[0]
    if size > LARGEST:
        raise EOFError
    return json.loads(exactly(fd, size, ready))


def put(fd: int, value: Any, ready: Ready | None = None) -> None:
    text = json.dumps(value).encode()
    data = memoryview(struct.pack("I", len(text)) + text)
    while data:
        if ready is not None:
            ready(fd)
        with contextlib.suppress(BlockingIOError):
            data = data[os.write(fd, data) :]


_SEVERAL: tuple[tuple[str, Any], ...] = (("t", tuple), ("s", set), ("z", frozenset))


def pack(x: Any, keep: Callable[[Any], int]) -> Any:
    """`keep` returns a number for a value that cannot be sent, or raises."""
    kind: Any = type(x)
    if x is None or kind in (bool, int, str):
        return x
    if isinstance(x, bool):
        return bool(x)
    if isinstance(x, int):
        return int(x)
    if isinstance(x, str):
        return str.__str__(x)
    if isinstance(x, float):
        return {"f": repr(float(x))}
    if isinstance(x, complex):
        return {"c": repr(complex(x))}
    if isinstance(x, bytes | bytearray):
        return {"b": bytes(x).hex()}
    if isinstance(x, re.Match):
        return True
    if isinstance(x, type) and getattr(builtins, name := getattr(x, "__name__", ""), None) is x:
        return {"n": name}
    for tag, one in _SEVERAL:
        if isinstance(x, one):
            return {tag: [pack(y, keep) for y in one.__iter__(x)]}
    if isinstance(x, list):
        return [pack(y, keep) for y in list.__iter__(x)]
    if isinstance(x, dict):
        return {"d": [[pack(a, keep), pack(b, keep)] for a, b in dict.items(x)]}
    if isinstance(x, _LAZY) or hasattr(kind, "__next__"):
        return {"g": [pack(y, keep) for y in itertools.islice(x, LONGEST)]}
    return {"h": keep(x)}


def _builtin_type(name: str) -> type:
    found = getattr(builtins, name)
    if not isinstance(found, type):
        raise ValueError
    return found


def unpack(x: Any, kept: Callable[[int], Any]) -> Any:
    """`kept` returns the value that a number stands for."""
    if isinstance(x, list):
        return [unpack(y, kept) for y in x]
    if not isinstance(x, dict):
        return x
    ((tag, y),) = x.items()
    single: dict[str, Callable[[Any], Any]] = {
        "f": float, "c": complex, "b": bytes.fromhex, "h": kept, "n": _builtin_type,
    }  # fmt: skip
    if tag in single:
        return single[tag](y)
    if tag == "d":
        return {unpack(a, kept): unpack(b, kept) for a, b in y}
    return {**dict(_SEVERAL), "g": iter}[tag]([unpack(z, kept) for z in y])

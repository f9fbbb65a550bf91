"""Reads the answers of servers, which may be slow, may never end, or may redirect to another server."""

from __future__ import annotations

import time
import urllib.request
from typing import Any


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without its body, and a key would be sent to another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)
_PART = 2**16  # bytes that are read at a time


def answer_to(request: urllib.request.Request, seconds: float, most: int) -> bytes:
    """The answer to a request; one byte more than `most` if it is longer. Raises what urllib raises, and `TimeoutError`
    if the whole answer takes longer than `seconds`: the time limit of a socket starts again with every byte."""
    until, found = time.monotonic() + seconds, bytearray()
    with _OPENER.open(request, timeout=seconds) as answer:
        while len(found) <= most and (part := answer.read1(_PART)):
            found += part
            if time.monotonic() > until:
                raise TimeoutError("timed out")
    return bytes(found[: most + 1])

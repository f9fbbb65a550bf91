"""A key that can be sent but is never shown.

A server may echo the key in its status line, its headers or its body, and the HTTP libraries repeat all of them in
exceptions and debug logs. So every text from outside passes through `Secret.hide` before it is raised, and `masked`
does the same for the log records of those libraries.
"""

from __future__ import annotations

import html
import json
import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from interplay.errors import ConfigError

_SHORTEST = 8  # this many characters of a key in a row are hidden; fewer could be part of any text
_INSTEAD = "[key]"
_LOGGERS = (
    "openai._base_client",
    "openai._legacy_response",
    "openai._response",
    "httpx",
    "httpx2",
    *(
        f"{library}.{part}"
        for library in ("httpcore", "httpcore2")
        for part in ("connection", "http11", "http2", "proxy", "socks")
    ),
)


class Secret:
    """Its value appears neither in `repr` nor in the text that `hide` returns.

    >>> key = Secret("sk-12345678")
    >>> key
    Secret(hidden)
    >>> key.hide("you sent 'Bearer sk-12345678', and sk-12345 is not enough")
    "you sent 'Bearer [key]', and [key] is not enough"
    """

    __slots__ = ("_parts", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        url = quote(value, safe="", errors="replace")
        written = {value, json.dumps(value)[1:-1], repr(value)[1:-1], html.escape(value), url} - {""}
        self._parts: dict[int, set[str]] = {}  # by length
        for form in written:
            width = min(len(form), _SHORTEST)
            parts = {form[i : i + width] for i in range(len(form) - width + 1)}
            self._parts.setdefault(width, set()).update(parts)

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __bool__(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        return self._value

    @property
    def fits_a_header(self) -> bool:
        """Whether it has only visible ASCII characters, which is what an HTTP header can carry."""
        return self._value.isascii() and self._value.isprintable() and " " not in self._value

    def hide(self, text: str) -> str:
        """`text` without any eight or more characters of the key in a row, also where a server escaped them for JSON,
        HTML, Python or a URL. A shorter key is hidden as a whole."""
        shown: list[str] = []
        end = 0  # everything before it was copied or hidden
        for i in range(len(text)):
            width = max((w for w, parts in self._parts.items() if text[i : i + w] in parts), default=0)
            if width and (i > end or not shown):
                shown += [text[end:i], _INSTEAD]
            end = max(end, i + width) if width else end
        return "".join([*shown, text[end:]])


def read_key(variable: str, whose: str) -> Secret:
    """The key in an environment variable, without spaces and line breaks around it; empty if it is not set. `whose`
    names the server in the error for a key that cannot be sent."""
    secret = Secret(os.environ.get(variable, "").strip())
    if not secret.fits_a_header:
        raise ConfigError(
            f"the key of {whose} in the environment variable {variable} cannot be sent in an HTTP header; expected "
            "ASCII characters without spaces or line breaks."
        )
    return secret


class _Mask(logging.Filter):
    def __init__(self, secret: Secret) -> None:
        super().__init__()
        self.secret = secret

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = self.secret.hide(record.getMessage()), None
        if record.exc_info:
            record.exc_text = self.secret.hide("".join(traceback.format_exception(*record.exc_info)).rstrip())
            record.exc_info = None
        return True


@contextmanager
def masked(secret: Secret) -> Iterator[None]:
    """While this context is open, the HTTP libraries do not log the secret. Each of their loggers gets a filter,
    because child loggers do not inherit filters."""
    mask = _Mask(secret)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(mask)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(mask)

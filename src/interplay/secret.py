"""A key that can be sent but is never shown.

A server may echo the key in its status line, its headers or its body, and the HTTP libraries repeat all of them in
exceptions and debug logs. So every text from outside passes through `Secret.hide` before it is raised, and `masked`
does the same for the log records of those libraries.
"""

from __future__ import annotations

import html
import logging
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from interplay.errors import ConfigError

_SHORTEST = 8  # this many characters of a key in a row are hidden; fewer could be part of any text
_WHOLE = 16  # a key with this many characters does not occur in other text by chance
_INSTEAD = "[key]"
_ESCAPED = [  # escaped characters: in a URL, in JSON and Python, in HTML
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"%[0-9a-f]{2}",
        r"\\(?:u[0-9a-f]{4}|x[0-9a-f]{2}|[/\\\"'])",
        r"&(?:#\d{1,4}|#x[0-9a-f]{1,3}|quot|apos|amp|lt|gt);",
    )
]
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

    __slots__ = ("_parts", "_value", "_width")

    def __init__(self, value: str) -> None:
        self._value, self._width = value, min(len(value), _SHORTEST)
        self._parts = {value[i : i + self._width] for i in range(len(value) - self._width + 1)} - {""}

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
        """`text` without any eight or more characters of the key in a row, even if a server escaped them for JSON,
        HTML, Python or a URL. A shorter key is hidden as a whole."""
        hidden = self._hidden(text, [(i, i + 1) for i in range(len(text))])
        for pattern in _ESCAPED:
            read: list[str] = []
            spans: list[tuple[int, int]] = []
            end = 0
            for escape in pattern.finditer(text):
                spans += [(i, i + 1) for i in range(end, escape.start())] + [escape.span()]
                read += [text[end : escape.start()], _character(escape[0])]
                end = escape.end()
            if end:
                spans += [(i, i + 1) for i in range(end, len(text))]
                hidden |= self._hidden("".join([*read, text[end:]]), spans)
        shown = [(_INSTEAD if i - 1 not in hidden else "") if i in hidden else c for i, c in enumerate(text)]
        return "".join(shown)

    def _hidden(self, read: str, spans: list[tuple[int, int]]) -> set[int]:
        """The positions in a text that belong to the key. `read` is the text with its escapes replaced, and `spans`
        says where each character of `read` is in the text."""
        starts = [i for i in range(len(read)) if read[i : i + self._width] in self._parts]
        return {k for i in starts for span in spans[i : i + self._width] for k in range(*span)}

    def is_in(self, text: str) -> bool:
        """Whether a text contains the whole key. A short key may occur in any text by chance, so it is not searched."""
        return len(self._value) >= _WHOLE and self._value in text


def _character(escaped: str) -> str:
    """The character that an escape stands for."""
    if escaped[0] == "&":
        return html.unescape(escaped) or "\0"  # some numbers stand for no character
    return chr(int(escaped.lstrip("%\\uUxX"), 16)) if escaped[0] == "%" or escaped[1] in "uUxX" else escaped[1]


def read_key(variable: str, whose: str) -> Secret:
    """The key in an environment variable, without spaces and line breaks around it; empty if it is not set. `whose`
    names the server in the error for a key that cannot be sent."""
    secret = Secret(os.environ.get(variable, "").strip())
    if not secret.fits_a_header:
        raise ConfigError(
            f"the key of {whose} in the environment variable {variable} cannot be sent in an HTTP header; expected "
            "ASCII characters without spaces or line breaks. Set the variable again."
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

"""Search over HTTP: any service that answers `GET URL?q=…&count=…` with JSON rows of `title` and `text`.

The rows may stand alone or under `results`; `snippet` and `content` are read for `text`, too. There are limits on time,
size, number and length of what comes back, no redirects are followed, and only http and https are spoken. A service
that fails or answers nonsense is a failure of the machinery (`EnvError`), never an empty result. Answers are kept, so
that a query repeated in a run gets the same passages.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import urlencode, urlsplit

from interplay.errors import ConfigError, EnvError

SECONDS = 10.0
LARGEST = 1 << 20  # bytes of an answer
LONGEST = 2_000  # characters of a passage

Passage = tuple[str, str]  # title, text


class _Straight(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Straight)


def checked(url: str) -> str:
    """`url` itself; an error where it is no address of a search service."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"env.web is '{url}'; expected the http or https address of a search service.")
    return url


@lru_cache(maxsize=10_000)
def search(url: str, query: str, count: int, seconds: float = SECONDS) -> tuple[Passage, ...]:
    """At most `count` passages, in the service's order."""
    address = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({'q': query[:1_000], 'count': count})}"
    request = urllib.request.Request(address, headers={"Accept": "application/json", "User-Agent": "interplay"})
    try:
        with _OPENER.open(request, timeout=seconds) as answer:
            body = answer.read(LARGEST + 1)
    except (OSError, ValueError, urllib.error.URLError) as error:
        _fail(url, str(getattr(error, "reason", error)))
    if len(body) > LARGEST:
        _fail(url, f"an answer of more than {LARGEST:,} bytes")
    try:
        found = json.loads(body)
        rows = found["results"] if isinstance(found, dict) else found
        return tuple(_passage(row) for row in rows[:count])
    except (ValueError, KeyError, TypeError, RecursionError):
        _fail(url, "no JSON list of rows with title and text")


def _passage(row: Mapping[str, Any]) -> Passage:
    text = next(row[key] for key in ("text", "snippet", "content") if key in row)
    return str(row.get("title", ""))[:LONGEST], str(text)[:LONGEST]


def _fail(url: str, why: str) -> NoReturn:
    raise EnvError(f"the search service at {urlsplit(url).netloc} gave no result: {why}.")

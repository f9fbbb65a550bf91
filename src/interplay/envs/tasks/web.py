"""Search over HTTP: any service that answers `GET URL?q=…&count=…` with JSON rows of `title` and `text`.

The rows may be the whole answer, or be under `results` (SearXNG: URL = http://HOST/search?format=json) or
`web.results`. Instead of `text`, `snippet`, `content` and `description` are accepted too. A key is read from the
environment, sent as a bearer token, and never shown. Time, size, number and length of the results are limited,
redirects are not followed, and only http and https are allowed. A service that fails or gives an invalid answer is a
failure of the system (`EnvError`), never an empty result. Answers are cached, so that a repeated query in a run gets
the same passages.
"""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import urlencode, urlsplit

from interplay.errors import ConfigError, EnvError
from interplay.fetch import answer_to
from interplay.secret import Secret, read_key

SECONDS = 10.0
LARGEST = 1 << 20  # the largest size of an answer in bytes
LONGEST = 2_000  # the largest number of characters in a passage

Passage = tuple[str, str]  # title, text


def checked(url: str, key: str = "") -> str:
    """Return `url`. Raise an error if it is not the address of a search service, or if its key is missing."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"env.web is '{url}'; expected the http or https address of a search service.")
    if key and not read_key(key, "the search service"):
        raise ConfigError(f"env.web_key names the environment variable {key}, which is not set; set it to the key.")
    return url


@lru_cache(maxsize=10_000)
def search(url: str, query: str, count: int, key: str = "", seconds: float = SECONDS) -> tuple[Passage, ...]:
    """At most `count` passages, in the service's order; `key` is the environment variable with the service's key."""
    address = f"{url}{'&' if urlsplit(url).query else '?'}{urlencode({'q': query[:1_000], 'count': count})}"
    headers = {"Accept": "application/json", "User-Agent": "interplay"}
    secret = read_key(key, "the search service") if key else Secret("")
    headers |= {"Authorization": f"Bearer {secret.reveal()}"} if secret else {}
    request = urllib.request.Request(address, headers=headers)
    try:
        body = answer_to(request, seconds, LARGEST)
    except (OSError, ValueError, http.client.HTTPException) as error:
        _fail(url, secret.hide(str(getattr(error, "reason", error)).strip()))
    if len(body) > LARGEST:
        _fail(url, f"an answer of more than {LARGEST:,} bytes")
    try:
        found = json.loads(body)
        if isinstance(found, dict):
            found = found.get("web", found)["results"]
        passages = tuple(_passage(row) for row in found[:count])
    except (ValueError, KeyError, TypeError, RecursionError):
        _fail(url, "no JSON list of rows with title and text")
    if any(secret.is_in(text) for passage in passages for text in passage):  # passages are recorded and shown
        _fail(url, "it answered with the key that it was sent")
    return passages


def _passage(row: Mapping[str, Any]) -> Passage:
    text = row[next((key for key in ("text", "snippet", "content", "description") if key in row), "text")]
    return _words(row.get("title", "")), _words(text)


def _words(value: Any) -> str:
    return str(value)[:LONGEST].encode("utf-8", "replace").decode()  # JSON can contain half of a surrogate pair


def _fail(url: str, why: str) -> NoReturn:
    host = urlsplit(url).netloc.rpartition("@")[2]  # without a user name and a password
    raise EnvError(f"the search service at {host} gave no result: {why}.") from None  # the cause may show the key

"""The client of a reward server: replies are sent in batches, and scores come back. A failure is typed, never a 0.

After lost connections, time-outs, answers that are not whole, 429 and 5xx it tries again with growing pauses; other
errors are raised at once. The server's token is read from an environment variable and sent in a header; it is never
part of a message.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from interplay.config import JudgeSection
from interplay.errors import JudgeError
from interplay.secret import read_key
from interplay.types import Message

_MOST_BYTES = 8 * 2**20  # the largest size of one answer
_AGAIN = (408, 425, 429, 500, 502, 503, 504)


class RemoteScorer:
    """`pause` is the first wait before another try; it doubles each time. `version` is what the server reported
    last."""

    def __init__(self, section: JudgeSection, pause: float = 0.5) -> None:
        self.url, self.timeout, self.retries = section.who.rstrip("/"), section.timeout, section.retries
        self._variable, self.pause = section.key_variable, pause
        self.version: str | None = None

    async def scores(self, asked: Sequence[tuple[tuple[Message, ...], str]]) -> list[float]:
        rows = [{"messages": [[m.role, m.content] for m in question], "reply": reply} for question, reply in asked]
        problem = ""
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(self.pause * 2 ** (attempt - 1))
            try:
                work = asyncio.to_thread(self._post, json.dumps({"items": rows}).encode())
                return self._read(await asyncio.wait_for(work, self.timeout + 1), len(rows))
            except _Again as error:
                problem = str(error)
            except TimeoutError:
                problem = f"no answer within {self.timeout:g} s"
        raise JudgeError(
            f"the reward server {self.url} failed {self.retries + 1} times; the last time: {problem}. Start it with "
            "interplay judge serve, or raise the judge's timeout or retries."
        )

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(f"{self.url}/score", body, {"Content-Type": "application/json"})
        token = read_key(self._variable, "the reward server")
        if token:
            request.add_unredirected_header("Authorization", f"Bearer {token.reveal()}")
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                found: bytes = answer.read(_MOST_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code in _AGAIN:
                raise _Again(f"status {error.code}") from None
            what = "its token is wrong or missing" if error.code in (401, 403) else f"status {error.code}"
            raise JudgeError(
                f"the reward server {self.url} refused the request: {what}; its token is read from {self._variable}."
            ) from None
        except (OSError, TimeoutError, http.client.HTTPException) as error:
            raise _Again(type(error).__name__) from None
        if len(found) > _MOST_BYTES:
            raise JudgeError(f"the reward server {self.url} answered with more than {_MOST_BYTES:,} bytes.")
        return found

    def _read(self, body: bytes, count: int) -> list[float]:
        try:
            data: dict[str, Any] = json.loads(body)
        except (ValueError, RecursionError):  # a server that was killed while it answered has sent a part of the answer
            raise _Again("an answer that is not JSON") from None
        try:
            found = [float(x) for x in data["scores"]]
            self.version = str(data["version"])
        except (ValueError, KeyError, TypeError, OverflowError):
            raise JudgeError(
                f"the reward server {self.url} gave an answer that cannot be parsed; expected JSON with scores and "
                "version, as interplay judge serve sends it."
            ) from None
        if len(found) != count or not all(map(math.isfinite, found)):
            raise JudgeError(
                f"the reward server {self.url} gave {len(found)} scores for {count} replies; expected one finite score "
                "for each."
            )
        return found


class _Again(Exception):
    """A failure after which it is worth trying again."""

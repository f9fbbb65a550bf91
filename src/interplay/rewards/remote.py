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
from interplay.fetch import answer_to
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
            found = answer_to(request, self.timeout, _MOST_BYTES)
        except urllib.error.HTTPError as error:
            if error.code in _AGAIN:
                raise _Again(f"status {error.code}") from None
            raise JudgeError(
                f"the reward server {self.url} refused the request: {self._refused(error.code)}."
            ) from None
        except TimeoutError:
            raise _Again(f"no whole answer within {self.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise _Again(type(error).__name__) from None
        if len(found) > _MOST_BYTES:
            raise JudgeError(f"the reward server {self.url} answered with more than {_MOST_BYTES:,} bytes.")
        return found

    def _refused(self, code: int) -> str:
        """Why a request was refused, and what to do."""
        if code in (401, 403):
            return f"its token is wrong or missing; the token is read from {self._variable}"
        if 300 <= code < 400:
            return f"it redirects to another address (status {code}); name that address as the judge's who"
        return f"status {code}; expected a server that answers POST {self.url}/score, as interplay judge serve does"

    def _read(self, body: bytes, count: int) -> list[float]:
        try:
            data: dict[str, Any] = json.loads(body)
        except (ValueError, RecursionError):  # a server that was killed while it answered has sent a part of the answer
            raise _Again("an answer that is not JSON") from None
        try:
            given = data["scores"]
            if not isinstance(given, list) or any(isinstance(x, bool | str) for x in given):
                raise ValueError("scores must be a list of numbers")
            found = [float(x) for x in given]
            self.version = str(data["version"])
        except (ValueError, KeyError, TypeError, OverflowError):
            raise JudgeError(
                f"the reward server {self.url} gave an answer that cannot be parsed; expected JSON with scores and "
                "version, as interplay judge serve sends it."
            ) from None
        if len(found) != count:
            raise JudgeError(
                f"the reward server {self.url} gave {len(found)} scores for {count} replies; expected one for each."
            )
        if (bad := next((x for x in found if not math.isfinite(x)), None)) is not None:
            raise JudgeError(f"the reward server {self.url} gave the score {bad}; expected finite numbers.")
        return found


class _Again(Exception):
    """A failure after which it is worth trying again."""

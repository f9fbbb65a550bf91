"""The `openai` package's client, with limits on the time and size of an answer.

The client itself retries after a lost connection, 408, 409, 429 and 5xx, with growing pauses or after the time that the
server asks for (`Retry-After`). Three things are added at the place where it sends a request, so that its retries cover
them too: a limit on the total time of an answer (the client limits only each read, so a server that sends slowly would
never reach its limit), a limit on the size of an answer, and a check that status 200 came with a complete answer.

The key is added at the same place, so the client never holds it and cannot show it.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from importlib import import_module
from typing import Any

from interplay.config import RemoteSection
from interplay.engines.answer import BadAnswer, read_answer
from interplay.errors import ConfigError
from interplay.secret import Secret

TRIES = "x-stainless-retry-count"  # the header in which the client counts its retries
_MOST_BYTES = 8 * 2**20  # of one answer, after decompression
# Only these headers are sent. The client adds others from OPENAI_ORG_ID, OPENAI_CUSTOM_HEADERS and so on, which may be
# secret, and this server may not be OpenAI's.
_SENT = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent", TRIES}
)
_DECODED = ("", "identity", "gzip")  # several nested encodings could expand a few bytes to gigabytes


def chat_client(section: RemoteSection, secret: Secret) -> Any:
    """An `openai.AsyncOpenAI` that returns complete answers or raises an error of the openai package."""
    try:
        import openai
    except ImportError:
        raise ConfigError("a remote model needs the openai package: pip install 'interplay[remote]'.") from None
    # openai 3 uses httpx2, and openai 2 uses httpx. The client retries only after errors of the library that it uses.
    http = import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__)

    class LimitedClient(openai.DefaultAsyncHttpxClient):
        async def send(self, request: Any, **options: Any) -> Any:
            for name in set(request.headers) - _SENT:
                del request.headers[name]
            if secret:
                request.headers["Authorization"] = f"Bearer {secret.reveal()}"
            try:
                async with asyncio.timeout(section.timeout):
                    async with aclosing(await super().send(request, **{**options, "stream": True})) as response:
                        return _checked(http, response, await _body(response), section.limit, secret)
            except TimeoutError:
                raise http.ReadTimeout("the whole answer took too long", request=request) from None
            except BadAnswer as flaw:
                raise http.RemoteProtocolError(flaw.what, request=request) from flaw

    limits = http.Limits(max_connections=section.concurrency, max_keepalive_connections=section.concurrency)
    try:
        return openai.AsyncOpenAI(
            api_key="added when a request is sent",
            base_url=section.url,
            timeout=section.timeout,
            max_retries=section.retries,
            http_client=LimitedClient(follow_redirects=False, limits=limits, headers={"Accept-Encoding": "gzip"}),
        )
    except (http.InvalidURL, ValueError, ImportError) as error:  # the text may show a proxy's password
        kind = type(error).__name__
    raise ConfigError(
        f"the connection to '{section.url}' cannot be set up ({kind}); check remote.url and the environment variables "
        "HTTP_PROXY, HTTPS_PROXY and ALL_PROXY."
    )


async def _body(response: Any) -> bytes:
    if response.headers.get("content-encoding", "").strip().lower() not in _DECODED:
        raise BadAnswer("compressed its answer in a way that was not asked for", response.headers["content-encoding"])
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise BadAnswer(f"answered with more than {_MOST_BYTES // 2**20} MiB")
    return bytes(body)


def _checked(http: Any, response: Any, body: bytes, limit: str, secret: Secret) -> Any:
    """The response for the client: an error status unchanged, or the checked parts of an answer."""
    if response.is_success:
        if response.status_code != 200:
            raise BadAnswer(f"answered with status {response.status_code} where 200 was expected")
        answer = read_answer(body, json.loads(response.request.content).get(limit))
        if secret.is_in(answer.text):  # a reply is recorded and shown
            raise BadAnswer("answered with the key that it was sent")
        choice = {"message": {"content": answer.text}, "finish_reason": "length" if answer.cut else "stop"}
        data = {"choices": [choice], "usage": {"completion_tokens": answer.used}}
        return http.Response(200, json=data, request=response.request)
    told = ("retry-after", "retry-after-ms", "x-should-retry")
    headers = {name: value for name, value in response.headers.items() if name in told}
    return http.Response(response.status_code, headers=headers, content=body, request=response.request)

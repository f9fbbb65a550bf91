"""A table of all ways in which a chat server's answer can be bad.

If a failure has a body, it echoes the key that was sent (`ECHO`), as some servers do in their error messages.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

from chat_server import ECHO, Handler, Wrong, completion, error

KEY = ECHO.decode()
LIMIT = 9  # tokens that each request allows


@dataclass(frozen=True)
class Failure:
    """`says` is a regular expression for the error's sentence; without `again` the request is not tried again."""

    name: str
    wrong: Wrong
    says: str
    again: bool = True
    is_slow: bool = False  # it is a failure only because of the time limit

    def __str__(self) -> str:
        return self.name


def sends(data: bytes, status: int = 200, **headers: str) -> Wrong:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.send(status, data, named)


def status(code: int) -> Wrong:
    return sends(error(f"a {code} for {KEY}, on purpose."), code)


def choice(**fields: Any) -> Wrong:
    return sends(completion(**{"text": f"partial {KEY}", "used": 3, **fields}))


def message(**fields: Any) -> Wrong:
    return choice(message={"role": "assistant", **fields})


def hang(handler: Handler) -> None:
    handler.chat.stopped.wait(30)
    handler.leave()


def drip(handler: Handler) -> None:
    """Sends one byte at a time, each well within a limit on single reads."""
    handler.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not handler.chat.stopped.wait(0.02):
        handler.raw(b" ")


def drip_headers(handler: Handler) -> None:
    handler.raw(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.chat.stopped.wait(0.02):
        handler.raw(b"a")


def endless(handler: Handler) -> None:
    handler.raw(b"HTTP/1.1 200 OK\r\n\r\n")
    while not handler.chat.stopped.is_set():
        handler.raw(b"[" * 65536)


def endless_headers(handler: Handler) -> None:
    handler.raw(b"HTTP/1.1 200 OK\r\n")
    while not handler.chat.stopped.is_set():
        handler.raw(b"X-More: %s\r\n" % (b"a" * 1000))


def breaks_off(data: bytes, reset: bool = False) -> Wrong:
    def wrong(handler: Handler) -> None:
        handler.raw(data)
        handler.leave(reset)

    return wrong


HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + completion(f"half {KEY}")[:30]
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PACKED = gzip.compress(completion("hello"))
BOMB = gzip.compress(b" " * 2**26)
NOT_JSON, NO_CHAT = "something that is not JSON", "something that is not a chat completion"
COUNT = rf"counted its tokens wrong \(usage.completion_tokens; expected 1 to {LIMIT}\)"
UNFINISHED = "a finish_reason other than 'stop' and 'length'"

FAILURES = [
    # statuses
    *(Failure(f"status {code}", status(code), rf"answered with status {code}: a {code} for") for code in
      (408, 409, 429, 500, 502, 503, 504, 529, 599)),
    *(Failure(f"status {code}", status(code), rf"answered with status {code}: a {code} for", again=False)
      for code in (400, 402, 404, 405, 413, 422, 451)),
    *(Failure(f"status {code}", status(code), rf"refused the key \(status {code}.*OPENAI_API_KEY", again=False)
      for code in (401, 403)),
    *(Failure(f"redirect {code}", sends(error(KEY), code, Location=f"/elsewhere?key={KEY}"),
              rf"redirected the request \(status {code}.*set remote.url", again=False)
      for code in (301, 302, 303, 307, 308)),
    Failure("status 201 with an answer", sends(completion(KEY), 201), "status 201 where 200 was expected"),
    Failure("status 204", breaks_off(b"HTTP/1.1 204 No Content\r\n\r\n"), "status 204 where 200 was expected"),
    Failure("status 500 as a page", sends(f"<html>{KEY} went wrong</html>".encode(), 500), "status 500: <html>"),
    Failure("status 500 without a body", sends(b"", 500), r"answered with status 500\W"),
    Failure("status 500 with another error", sends(json.dumps({"error": KEY}).encode(), 500), "status 500: "),
    # the connection
    Failure("closed at once", breaks_off(b""), r"gave no answer: \w+Error: "),
    Failure("reset at once", breaks_off(b"", reset=True), r"gave no answer: \w+Error"),
    Failure("closed in the middle", breaks_off(HALF), r"gave no answer: \w+Error: "),
    Failure("reset in the middle", breaks_off(HALF, reset=True), r"gave no answer: \w+Error"),
    Failure("not HTTP", breaks_off(f"{KEY} is not HTTP\r\n\r\n".encode()), r"gave no answer: \w+Error: "),
    Failure("bad header", breaks_off(f"HTTP/1.1 200 OK\r\n{KEY}\0\r\n\r\n".encode()), r"gave no answer: \w+Error"),
    Failure("bad chunk", breaks_off(CHUNKED + f"zz\r\n{KEY}\r\n".encode()), r"gave no answer: \w+Error"),
    Failure("no last chunk", breaks_off(CHUNKED + b"5\r\nhello\r\n"), r"gave no answer: \w+Error"),
    Failure("endless headers", endless_headers, r"gave no answer: \w+Error"),
    # time and size
    Failure("hangs", hang, r"gave no answer within 1 s", is_slow=True),
    Failure("drips", drip, r"gave no answer within 1 s", is_slow=True),
    Failure("drips headers", drip_headers, r"gave no answer within 1 s", is_slow=True),
    Failure("endless", endless, "answered with more than 8 MiB"),
    # compression
    Failure("garbage as gzip", sends(f"{KEY} is no gzip".encode(), Content_Encoding="gzip"), r"DecodingError"),
    Failure("half a gzip", sends(PACKED[:40], Content_Encoding="gzip"), f"an empty body|{NOT_JSON}"),
    Failure("gzip bomb", sends(BOMB, Content_Encoding="gzip"), "answered with more than 8 MiB"),
    Failure("gzip in gzip", sends(gzip.compress(PACKED), Content_Encoding="gzip, gzip"),
            "compressed its answer in a way that was not asked for: gzip, gzip"),
    Failure("an unknown encoding", sends(completion(), Content_Encoding=KEY), "way that was not asked for"),
    # JSON
    Failure("nothing", sends(b""), "answered with an empty body"),
    Failure("a page", sends(f"<html>{KEY} is busy</html>".encode()), f"{NOT_JSON}: <html>"),
    Failure("half of JSON", sends(completion(KEY)[:-4]), NOT_JSON),
    Failure("deeply nested", sends(b"[" * 200_000), NOT_JSON),
    Failure("not UTF-8", sends(b'{"choices": "\xff\xfe%s"}' % ECHO), NOT_JSON),
    Failure("a stream", sends(b"data: " + completion(KEY) + b"\n\ndata: [DONE]\n\n"), NOT_JSON),
    Failure("too large a number", sends(b'{"choices": %s}' % (b"9" * 5000)), NOT_JSON),
    # types
    *(Failure(f"JSON {body[:40]}", sends(body.encode()), NO_CHAT) for body in
      ("null", "[]", f'"{KEY}"', "7", "{}", '{"choices": null}', '{"choices": []}', '{"choices": {"0": 1}}',
       '{"choices": ["hello"]}', '{"choices": [{}]}', '{"choices": [{"message": null}]}',
       '{"choices": [{"message": "hello", "finish_reason": "stop"}]}')),
    Failure("an error with status 200", sends(error(f"the model of {KEY} is gone")), f"{NO_CHAT}: the model of"),
    Failure("content is a list", message(content=[{"type": "text", "text": KEY}]), "a content that is not text"),
    Failure("content is a number", message(content=7), "a content that is not text: 7"),
    Failure("half of a surrogate pair", message(content="\ud800"), "not valid Unicode"),
    # no whole answer
    Failure("empty", message(content=""), "answered without text"),
    Failure("no content", message(), "answered without text"),
    Failure("content is null", message(content=None), "answered without text"),
    Failure("a tool call", choice(message={"content": None, "tool_calls": [{}]}, finish_reason="tool_calls"),
            f"{UNFINISHED}: 'tool_calls'"),
    Failure("filtered", choice(finish_reason="content_filter"), f"{UNFINISHED}: 'content_filter'"),
    Failure("filtered without text", choice(message={"content": ""}, finish_reason="content_filter"), UNFINISHED),
    Failure("filtered with null", choice(message={"content": None}, finish_reason="content_filter"), UNFINISHED),
    Failure("error after some text", choice(finish_reason="error"), f"{UNFINISHED}: 'error'"),
    Failure("aborted", choice(finish_reason="abort"), f"{UNFINISHED}: 'abort'"),
    Failure("no reason to finish", choice(finish_reason=None), f"{UNFINISHED}: None"),
    Failure("a reason of its own", choice(finish_reason=[KEY]), UNFINISHED),
    # counts
    *(Failure(f"count {used!r}", sends(completion("hello", used)), f"{COUNT}: ") for used in
      (-1_000_000_000, 0, LIMIT + 1, 10**30, 6.0, "6", True, [6], {"n": KEY})),
    Failure("no usage", sends(json.dumps({"choices": json.loads(completion())["choices"]}).encode()), f"{COUNT}: None"),
    Failure("usage is null", sends(completion()[:-len('{"completion_tokens": 6}}')] + b"null}"), f"{COUNT}: None"),
    Failure("more text than tokens", choice(message={"content": "a" * 3001}), "tokens wrong: 3 for 3001 characters"),
    Failure("cut without tokens", choice(message={"content": ""}, finish_reason="length", used=0), f"{COUNT}: 0"),
]  # fmt: skip

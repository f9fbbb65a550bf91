"""The two search tools: BM25 by hand, and a web service over HTTP with its limits."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from interplay.envs import make, sample_task
from interplay.envs.tasks import web
from interplay.envs.tasks.bm25 import K1, B, Index
from interplay.envs.tasks.data import DataEnv
from interplay.errors import ConfigError, EnvError


def test_bm25_by_hand() -> None:
    """Three passages of 2, 3 and 4 words, mean 3; the weights of one word from the formula."""
    index = Index(["red fox", "red red apple", "blue sea blue sky"])
    idf = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    once = idf * 1 * (K1 + 1) / (1 + K1 * (1 - B + B * 2 / 3))
    twice = idf * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * 3 / 3))
    at, weights = index._weighted("red")
    assert list(at) == [0, 1] and list(weights) == pytest.approx([once, twice]) and twice > once
    assert index.search("red", 5) == [1, 0] and index.search("Sky, the FOX!", 5) == [0, 2]
    assert index.search("nothing known", 5) == [] and index.search("the of", 5) == [] and Index([]).search("x", 3) == []
    equal = Index(["same", "same one", "same", "same"])
    assert equal.search("same", 4) == [0, 2, 3, 1] and equal.search("same", 3) == [0, 2, 3]
    assert equal.search("same", 2) == [], "not some of those that fit equally well"
    assert equal.search("same one", 2) == [1]


def test_what_the_question_itself_finds_is_computed_once_for_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search is rewarded without those passages, in every episode of the task and every fork."""
    asked: list[str] = []
    search = Index.search

    def counted(self: Index, query: str, count: int) -> list[int]:
        asked.append(query)
        return search(self, query, count)

    monkeypatch.setattr(Index, "search", counted)
    task = sample_task("search", {"searches": 3}, index=7_001)
    found = []
    for env in (make(task), make(task).fork(1)):
        assert isinstance(env, DataEnv)
        rewards = [env.step({"searcher": query}) for query in ("nothing", env.row["gold"][1]["title"], "nothing")]
        found.append([reward.value for one in rewards for reward in one])
    assert found == [[0.0, 1.0, 0.0]] * 2, "the question finds the person, and not the town"
    assert asked.count(env.row["question"]) == 1


class _Service(BaseHTTPRequestHandler):
    asked: list[dict[str, list[str]]] = []  # noqa: RUF012
    keys: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.asked.append(parse_qs(parts.query))
        self.keys.append(self.headers.get("Authorization"))
        body: Any = [{"title": f"T{n}", "text": f"text {n}"} for n in range(9)]
        if parts.path == "/results":
            body = {"results": [{"title": "R", "snippet": "x" * 9_000}]}
        elif parts.path == "/web":
            body = {"query": {}, "web": {"results": [{"title": "W", "description": "said"}]}}
        elif parts.path == "/other":
            body = {"hits": []}
        elif parts.path == "/textless":
            body = [{"title": "T"}]
        elif parts.path == "/half":
            body = [{"title": "T", "text": "a \ud800 b"}]
        elif parts.path == "/garbage":
            self.wfile.write(b"garbage\r\n\r\n")
            return
        elif parts.path == "/drops":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(300):
                    self.wfile.write(b" ")
                    time.sleep(0.2)
            return
        elif parts.path == "/slow":
            time.sleep(60)
        elif parts.path == "/large":
            body = ["x" * (web.LARGEST + 10)]
        elif parts.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/")
            self.end_headers()
            return
        self.send_response(500 if parts.path == "/broken" else 200)
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # who asked has gone
            self.wfile.write(b"not json" if parts.path == "/text" else json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_web_search(service: str) -> None:
    """The request contains the query; a repeated query is not sent again; texts are cut."""
    _Service.asked.clear()
    assert web.search(service, "cats & dogs?", 2) == (("T0", "text 0"), ("T1", "text 1"))
    web.search(service, "cats & dogs?", 2)
    assert _Service.asked == [{"q": ["cats & dogs?"], "count": ["2"]}]
    assert web.search(f"{service}/results?key=1", "x", 3) == (("R", "x" * web.LONGEST),)
    assert _Service.asked[-1] == {"key": ["1"], "q": ["x"], "count": ["3"]}
    assert web.search(f"{service}/web", "x", 3) == (("W", "said"),)


def test_a_service_with_a_key(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is read from the environment when it is needed; a missing key is reported before anything is played."""
    with pytest.raises(ConfigError, match=r"env\.web_key names the environment variable SEARCH_KEY, which is not set"):
        sample_task("search", {"web": service, "web_key": "SEARCH_KEY"})
    monkeypatch.setenv("SEARCH_KEY", "secret")
    env = make(sample_task("search", {"web": service, "web_key": "SEARCH_KEY"}))
    env.step({"searcher": "with a key"})
    assert _Service.keys[-1] == "Bearer secret" and "secret" not in str(env.task)


def test_half_a_character_does_not_reach_a_prompt(service: str) -> None:
    ((_, text),) = web.search(f"{service}/half", "x", 3)
    assert text.encode() == b"a ? b"


@pytest.mark.parametrize(
    "path", ["/broken", "/text", "/other", "/large", "/moved", "/slow", "/textless", "/garbage", "/drops"]
)
def test_a_service_that_fails_is_an_error_and_no_empty_result(service: str, path: str) -> None:
    began = time.monotonic()
    with pytest.raises(EnvError, match=r"the search service at .* gave no result"):
        web.search(service + path, "x", 3, seconds=0.5)
    assert time.monotonic() - began < 30  # half of what the slow ones would take


def test_the_task_over_the_web(service: str) -> None:
    """Results reach the prompts. It is unknown which results are right, so they are not scored, which is not zero."""
    env = make(sample_task("search", {"web": service, "searches": 1, "results": 2}))
    assert isinstance(env, DataEnv)
    assert [(r.name, r.value) for r in env.step({"searcher": "anything"})] == [("found", None)]
    assert "[2] T1: text 1" in env.observe()["reader"].messages[-1].content
    for bad in ("ftp://example.org", "file:///etc/passwd", "example.org"):
        with pytest.raises(ConfigError, match=r"env.web is .* expected the http or https address"):
            sample_task("search", {"web": bad})

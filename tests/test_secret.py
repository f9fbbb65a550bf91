"""Keys of servers other than models' (search, rewards, embeddings) are sent, and no failure shows them."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from interplay.config import JudgeSection
from interplay.envs.programs.server import EMBEDDINGS_KEY, _passed_on
from interplay.envs.tasks import web
from interplay.errors import ConfigError, EnvError, InterplayError, JudgeError
from interplay.rewards.remote import RemoteScorer
from interplay.types import Message

KEY = "sk-pass-word-123456"


class Echo(BaseHTTPRequestHandler):
    """Refuses every request, and says what it was sent."""

    heard: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        told = self.headers.get("Authorization", "")
        self.heard.append(told)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(400, f"no {told}")
        self.end_headers()
        self.wfile.write(f'{{"error": "{told}"}}'.encode())

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    Echo.heard.clear()
    with HTTPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def search(url: str) -> str:
    web.search.cache_clear()
    with pytest.raises(EnvError, match="gave no result") as caught:
        web.search(url, "q", 3, "MY_KEY", 5.0)
    return "".join(traceback.format_exception(caught.value))


def reward(url: str) -> str:
    scorer = RemoteScorer(JudgeSection(kind="reward_model", who=url, retries=0, key_variable="MY_KEY"))
    with pytest.raises(JudgeError) as caught:
        asyncio.run(scorer.scores([((Message("user", "q"),), "reply")]))
    return "".join(traceback.format_exception(caught.value))


def embeddings(url: str) -> str:
    reply = _passed_on(url, b"{}")
    assert reply.status in (400, 502)
    return reply.body.decode()


ASKED: list[Callable[[str], str]] = [search, reward, embeddings]


@pytest.fixture(params=ASKED, ids=lambda f: f.__name__)
def ask(request: pytest.FixtureRequest) -> Callable[[str], str]:
    found: Callable[[str], str] = request.param
    return found


@pytest.mark.parametrize("around", ["", "\n", " \r\n"])
def test_a_key_with_a_line_break_at_its_end_is_sent_and_a_server_that_echoes_it_shows_nothing(
    ask: Callable[[str], str], url: str, around: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MY_KEY", EMBEDDINGS_KEY):
        monkeypatch.setenv(variable, KEY + around)
    assert KEY not in ask(url)
    assert Echo.heard == [f"Bearer {KEY}"]


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(
    ask: Callable[[str], str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("MY_KEY", EMBEDDINGS_KEY):
        monkeypatch.setenv(variable, f"{KEY}\n{KEY}")
    try:
        shown = ask(url)
    except InterplayError as error:
        assert isinstance(error, ConfigError) and "cannot be sent in an HTTP header" in str(error)
        shown = "".join(traceback.format_exception(error))
    except ValueError as error:
        shown = str(error)
    assert KEY not in shown and Echo.heard == []


def test_a_password_in_the_address_of_a_search_service_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    assert "pass-word" not in search("http://user:pass-word@127.0.0.1:9")

"""A key is sent to the server and never shown: not in exceptions, tracebacks, logs or output."""

from __future__ import annotations

import asyncio
import html
import io
import json
import logging
import string
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from chat_server import Chat, serving
from failures import FAILURES, KEY, LIMIT, message
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from interplay import secret
from interplay.config import RemoteSection, load
from interplay.engines.engine import Request, Sampling
from interplay.engines.openai import RemoteEngine
from interplay.errors import ConfigError, RemoteError
from interplay.secret import Secret
from interplay.types import Message

SUMS = Path(__file__).parents[2] / "recipes" / "sums" / "grpo.toml"

# Twelve characters and more: no other text holds them by chance.
SENDABLE = st.text(string.ascii_letters + string.digits + string.punctuation, min_size=12, max_size=80)
ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=12, max_size=80)


class Logs(logging.StreamHandler):
    """Everything that is logged, with tracebacks, and who logged it."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.names: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.names.add(record.name)
        super().emit(record)

    def __str__(self) -> str:
        return self.stream.getvalue()


@contextmanager
def all_logs() -> Iterator[Logs]:
    """Down to DEBUG."""
    logs, root = Logs(), logging.getLogger()
    before = root.level
    root.addHandler(logs)
    root.setLevel(logging.DEBUG)
    try:
        yield logs
    finally:
        root.setLevel(before)
        root.removeHandler(logs)


def shown(error: BaseException) -> str:
    """Everything that a program may print of an exception: its chain, and the local variables of its frames, except
    those of this test, which knows the key."""
    chain = []
    link: BaseException | None = error
    while link is not None:
        chain += [str(link), repr(link)]
        link = link.__cause__ or link.__context__
    frames = traceback.TracebackException.from_exception(error, capture_locals=True)
    local = [f"{name} = {value}" for f in frames.stack if f.filename != __file__ for name, value in f.locals.items()]
    assert local
    return "\n".join([*chain, *traceback.format_exception(error), *local])


def forms(key: str) -> set[str]:
    """A key as a server or a library may write it. White space around environment variables is removed."""
    key = key.strip()
    written = {key, json.dumps(key)[1:-1], repr(key)[1:-1], ascii(key)[1:-1], html.escape(key), quote(key, safe="")}
    return written | {key[:12], key[-12:], repr(key.encode())[2:-1]}


def failing(chat: Chat) -> Iterator[str]:
    """What is shown for every failure in the table, with the key that is set."""
    request = Request((0,), (), 7, Sampling(max_tokens=LIMIT), messages=(Message("user", "Your move?"),))
    for slow in (False, True):
        engine = RemoteEngine("m", RemoteSection(url=chat.url, retries=0, timeout=0.1 if slow else 20.0))
        for failure in FAILURES:
            if failure.is_slow == slow:
                chat.script = [failure.wrong]
                with pytest.raises(RemoteError) as caught:
                    asyncio.run(engine.generate(request))
                yield shown(caught.value) + repr(engine) + str(engine)
        engine.close()


def check(key: str, seen: str) -> None:
    for form in forms(key):
        assert form not in seen


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(key=SENDABLE)
@example(key="sk-proj-abcdefghijklmnop")
@example(key="\"quotes'-and\\back\\slashes<&>%41-and-a-line-break-behind\n")
def test_no_failure_shows_the_key(key: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Even if the server echoes it in its status line, its headers or its body, and with debug logs switched on."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serving(Chat()) as chat, all_logs() as logs:
        for seen in failing(chat):
            check(key, seen)
        assert set(chat.keys) == {f"Bearer {key.strip()}"}, "it was sent"
    assert "receive_response_headers" in str(logs) and "[key]" in str(logs), "the transport logged the echo"
    libraries = {name for name in logs.names if name.partition(".")[0] not in ("asyncio", "interplay")}
    assert libraries <= set(secret._LOGGERS), "a new version of a library logs somewhere else: add it"
    check(key, str(logs) + "".join(capfd.readouterr()))


def test_a_reply_that_is_the_key_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies are recorded and shown. A word that some server takes for a key may be part of a reply."""
    request = Request((0,), (), 7, Sampling(max_tokens=LIMIT), messages=(Message("user", "Your move?"),))
    with serving(Chat()) as chat:
        for key in ("sk-proj-abcdefghijklmnop", "EMPTY"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            engine = RemoteEngine("m", RemoteSection(url=chat.url, retries=0))
            chat.script = [message(content=f"it is {KEY}")]
            if key == "EMPTY":
                assert asyncio.run(engine.generate(request)).text == "it is Bearer EMPTY"
            else:
                with pytest.raises(RemoteError, match="answered with the key that it was sent"):
                    asyncio.run(engine.generate(request))
            engine.close()


@settings(max_examples=100)
@given(key=ANY)
@example(key="line\nbreak-in-the-middle")
@example(key="carriage\rreturn-inside")
@example(key="schlüssel-mit-umlaut")
@example(key="half-a-surrogate-\udc80")
@example(key="a space in the middle")
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.MonkeyPatch.context() as patch, all_logs() as logs:
        patch.setenv("MY_KEY", key)
        try:
            RemoteEngine("m", RemoteSection(url="http://127.0.0.1:9/v1", key_variable="MY_KEY")).close()
            assert Secret(key.strip()).fits_a_header
        except ConfigError as error:
            stripped = key.strip()
            assert not stripped or not Secret(stripped).fits_a_header
            assert "MY_KEY" in str(error)
            assert not stripped or stripped not in shown(error) + str(logs)


@pytest.mark.parametrize(
    "section",
    [
        {"url": "https://user:pass-word-123@host/v1"},
        {"url": "user:pass-word-123@host/v1"},
        {"url": "http://pass-word-123@host:99999999/v1"},
        {"url": "http://host/v1?key=pass-word-123"},
        {"url": "http://host/v1#pass-word-123"},
        {"key_variable": "sk-pass-word-123"},
    ],
    ids=str,
)
def test_a_password_in_the_recipe_is_refused_without_showing_it(section: dict[str, str]) -> None:
    """A recipe is copied into run folders, so it must contain neither a password in the address nor the key itself."""
    with pytest.raises(ConfigError, match=r"environment variable") as caught:
        RemoteSection(**section)
    assert "pass-word-123" not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize("key", ["engine.url", "env.web", "env.program.embeddings", "judges.taste.who"])
def test_no_url_of_a_recipe_may_hold_a_password(key: str) -> None:
    """A run folder keeps the recipe. The name of the key is shown, and its value is not."""
    changes = ['judges.taste.kind="reward_model"', 'judges.taste.who="http://127.0.0.1:1"', 'engine.kind="vllm"']
    with pytest.raises(ConfigError, match=f"{key} is a URL with a user name or a password") as caught:
        load(SUMS, [*changes, f'{key}="https://me:pass-word-123@host/v1"'])
    assert "pass-word-123" not in str(caught.value) + repr(caught.value)


@settings(max_examples=50)
@given(key=SENDABLE, before=st.text(max_size=20), after=st.text(max_size=20))
def test_however_it_is_written_it_is_hidden(key: str, before: str, after: str) -> None:
    hidden = Secret(key)
    lower = "".join(c if c.isalnum() else f"%{ord(c):02x}" for c in key)
    numbers = "".join(c if c.isalnum() else f"&#{ord(c)};" for c in key)
    codes = "".join(f"\\u{ord(c):04x}" for c in key)
    slashes = json.dumps(key)[1:-1].replace("/", "\\/")
    written = (key, json.dumps(key)[1:-1], repr(key)[1:-1], html.escape(key), quote(key, safe=""))
    for form in (*written, lower, numbers, codes, slashes):
        assert form not in hidden.hide(f"{before}{form}{after}")
        assert hidden.hide(f"({form})") == "([key])"
    assert key[2:11] not in hidden.hide(f"{before}{key[2:11]}{after}"), "nor a part of it"
    assert hidden.hide("the rest stays") == "the rest stays"


def test_a_short_key_is_hidden_as_a_whole() -> None:
    """Some servers accept any word as a key."""
    assert Secret("EMPTY").hide("Bearer EMPTY, not EMPT") == "Bearer [key], not EMPT"
    assert Secret('"').hide('say "quote"') == "say [key]quote[key]"
    assert Secret("").hide("nothing to hide") == "nothing to hide"


def test_a_closed_engine_leaves_no_filter_on_the_loggers() -> None:
    engine = RemoteEngine("m", RemoteSection(url="http://127.0.0.1:9/v1"))
    before = [len(logging.getLogger(name).filters) for name in secret._LOGGERS]
    engine.close()
    after = [len(logging.getLogger(name).filters) for name in secret._LOGGERS]
    assert [b - a for b, a in zip(before, after, strict=True)] == [1] * len(before)

"""Every bad answer of a server is a typed failure: it is tried again a limited number of times, then raised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from chat_server import Chat, serving
from failures import FAILURES, LIMIT, Failure

from interplay.config import RemoteSection
from interplay.engines.engine import Request, Sampling
from interplay.engines.openai import RemoteEngine
from interplay.errors import RemoteError
from interplay.types import Completion, Message

RETRIES = 2


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Chat, RemoteEngine, RemoteEngine]]:
    """A server, an engine with a long time limit, and one with a short one."""
    with serving(Chat(answer=lambda body: "hello")) as chat, pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENAI_API_KEY", raising=False)
        patient, hurried = (RemoteEngine("m", RemoteSection(url=chat.url, timeout=t, retries=RETRIES)) for t in (60, 1))
        yield chat, patient, hurried
        patient.close()
        hurried.close()


Ask = Callable[[Failure, int], Completion]


@pytest.fixture
def ask(served: tuple[Chat, RemoteEngine, RemoteEngine]) -> Ask:
    """Asks for an answer, which comes after this many failures."""
    chat, patient, hurried = served
    request = Request((0,), (), 7, Sampling(max_tokens=LIMIT), messages=(Message("user", "Your move?"),))

    def asked(failure: Failure, times: int) -> Completion:
        chat.script, chat.bodies = [failure.wrong] * times, []
        return asyncio.run((hurried if failure.is_slow else patient).generate(request))

    return asked


@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_a_bad_answer_is_a_typed_failure(served: tuple[Chat, object, object], ask: Ask, failure: Failure) -> None:
    """Promise 7: it is never replaced by an empty answer."""
    tries = RETRIES + 1 if failure.again else 1
    counted = rf"{failure.says}.*\(tried {tries} times\)\.$" if failure.again else failure.says
    with pytest.raises(RemoteError, match=rf"^remote model 'm' at http://127\.0\.0\.1:\d+/v1 .*{counted}") as caught:
        ask(failure, tries)
    until = time.monotonic() + 60
    while len(served[0].bodies) < tries and time.monotonic() < until:
        time.sleep(0.01)  # on a busy machine the client may give up before the server has read what it sent
    assert len(served[0].bodies) == tries
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("failure", [f for f in FAILURES if f.again], ids=str)
def test_a_failure_that_may_pass_is_retried(served: tuple[Chat, object, object], ask: Ask, failure: Failure) -> None:
    """A failure, then the answer: the same request twice, or once more if a busy machine answers late."""
    assert ask(failure, 1).text == "hello"
    first, *again = served[0].bodies
    assert again in ([first], [first, first]) if failure.is_slow else again == [first]


def test_there_are_enough_ways_to_fail() -> None:
    assert len({f.name for f in FAILURES}) == len(FAILURES) >= 40

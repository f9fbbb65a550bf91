"""The reward server and its client: batches, tokens, versions, and typed failures."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from interplay.config import JudgeSection, TrainSection
from interplay.errors import ConfigError, JudgeError
from interplay.rewards.remote import RemoteScorer
from interplay.serving.reward import RewardServer, check_address
from interplay.training.preference import Better, Fitting, RewardModel
from interplay.types import Message

uvicorn = pytest.importorskip("uvicorn")
QUESTION = (Message("user", "Say it."),)


@pytest.fixture(scope="module")
def model(make_tiny: Callable[..., Any]) -> RewardModel:
    made = RewardModel("reward_model", make_tiny(0, "tiny-32x1"), TrainSection())
    made.fit([Better((QUESTION, "yes"), (QUESTION, "no"))] * 8, Fitting(epochs=4, batch=4, lr=3e-3))
    return made


def own_port() -> socket.socket:
    """A port that belongs to this test from now on. Nobody is reached there until a server listens."""
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


def address(port: socket.socket) -> str:
    return f"http://127.0.0.1:{port.getsockname()[1]}"


@contextmanager
def running(server: RewardServer, port: socket.socket | None = None) -> Iterator[str]:
    """A server on its own port, which is stopped at the end."""
    port = port or own_port()
    made = uvicorn.Server(uvicorn.Config(server.app(), log_level="error"))
    thread = threading.Thread(target=made.run, args=([port],), daemon=True)
    thread.start()
    while not made.started:
        assert thread.is_alive(), "the server ended while it started"
        time.sleep(0.01)
    try:
        yield address(port)
    finally:
        made.should_exit = True
        thread.join()
        port.close()


def client(url: str, **section: Any) -> RemoteScorer:
    return RemoteScorer(JudgeSection(kind="reward_model", who=url, **{"retries": 0, **section}), pause=0.05)


def test_scores_over_the_wire_are_the_models_own_with_its_version(model: RewardModel) -> None:
    server = RewardServer(model)
    asked = [(QUESTION, text) for text in ("yes", "no", "yes no")]
    with running(server) as url:
        scorer = client(url)
        assert asyncio.run(scorer.scores(asked)) == pytest.approx(model.scores(asked), abs=1e-5)
        assert scorer.version == server.version
        with urllib.request.urlopen(f"{url}/health") as answer:
            health = json.loads(answer.read())
    assert health == {"ok": True, "kind": "reward_model", "version": server.version, "waiting": 0}


def test_requests_that_arrive_together_are_scored_together(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first two batches are scored, others arrive; they are one batch."""
    server = RewardServer(model)
    scores, batches, begun = model.scores, list[int](), list[int]()

    def scored(asked: Any) -> list[float]:
        begun.append(len(asked))
        until = time.monotonic() + 60
        while not batches and sum(begun) + len(server._waiting) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        batches.append(len(asked))
        return scores(asked)

    monkeypatch.setattr(model, "scores", scored)

    async def many(url: str) -> list[list[float]]:
        scorer = client(url)
        return await asyncio.gather(*(scorer.scores([(QUESTION, f"yes {i}")]) for i in range(24)))

    with running(server) as url:
        found = asyncio.run(many(url))
    assert len(found) == sum(batches) == 24 and len(batches) == server.batches and max(batches) > 1


def test_many_scores_come_in_order_bit_for_bit_from_several_threads_too(model: RewardModel) -> None:
    """Replies of different lengths are computed in another order, and in two passes of the model."""
    asked = [(QUESTION, f"{i} " + "yes " * (7 * i % 23)) for i in range(300)]
    wanted = [*model.scores(asked[:256]), *model.scores(asked[256:])]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(model.scores, [asked] * 3))
    assert found == [wanted] * 3 and len(set(wanted)) > 200
    chat = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": asked[5][1]}]
    text = model.tokenizer.apply_chat_template(chat, tokenize=False)
    assert model.read(asked)[5] == tuple(model.tokenizer(text, add_special_tokens=False)["input_ids"])


class OnDevice:
    """Scores that a device still computes: reading them waits until another batch has been started."""

    def __init__(self, count: int, started: list[int], late: list[int]) -> None:
        self.count, self.started, self.late = count, started, late

    def __sub__(self, other: float) -> OnDevice:
        return self

    __truediv__ = __sub__

    def tolist(self) -> list[float]:
        until = time.monotonic() + 30
        while len(self.started) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        self.late += [1] if len(self.started) < 2 else []
        return [0.5] * self.count


def test_while_the_device_computes_a_batch_the_next_one_is_started(
    model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, late = list[int](), list[int]()

    def begin(asked: Any) -> OnDevice:
        started.append(len(asked))
        return OnDevice(len(asked), started, late)

    monkeypatch.setattr(model, "_scores", begin)

    async def both(url: str) -> list[list[float]]:
        return await asyncio.gather(*(client(url).scores([(QUESTION, text)]) for text in ("yes", "no")))

    with running(RewardServer(model, batch=1)) as url:
        assert asyncio.run(both(url)) == [[0.5], [0.5]]
    assert started == [1, 1] and not late


def test_a_wrong_token_is_refused_and_never_shown(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(RewardServer(model, token="right")) as url:
        monkeypatch.setenv("INTERPLAY_REWARD_KEY", "wrong-secret")
        with pytest.raises(JudgeError, match="its token is wrong or missing") as refused:
            asyncio.run(client(url).scores([(QUESTION, "yes")]))
        assert "wrong-secret" not in str(refused.value)
        monkeypatch.setenv("INTERPLAY_REWARD_KEY", "right")
        assert len(asyncio.run(client(url).scores([(QUESTION, "yes")]))) == 1


def test_a_server_that_is_killed_and_comes_back_loses_nothing(
    model: RewardModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client tries again until the server is there; if no tries are left, it raises a typed failure."""
    port = own_port()
    url = address(port)
    with pytest.raises(JudgeError, match=r"failed 1 times.*interplay judge serve"):
        asyncio.run(client(url).scores([(QUESTION, "yes")]))
    found: list[list[float]] = []
    patient = client(url, retries=10)
    post, tried = patient._post, list[bytes]()
    monkeypatch.setattr(patient, "_post", lambda body: (tried.append(body), post(body))[1])
    asking = threading.Thread(target=lambda: found.append(asyncio.run(patient.scores([(QUESTION, "yes")]))))
    asking.start()
    while not tried and asking.is_alive():
        time.sleep(0.01)
    with running(RewardServer(model), port):
        asking.join()
    assert found == [pytest.approx(model.scores([(QUESTION, "yes")]), abs=1e-5)]


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"nothing",
        b"[" * 100_000,
        b'{"items": [{"messages": []}]}',
        b'{"items": [1]}',
        b'{"items": [{"messages": ["ab"], "reply": "x"}]}',
        b'{"items": [{"messages": [["user", null]], "reply": "x"}]}',
        b'{"items": [{"messages": [], "reply": "\\ud800"}]}',
    ],
)
def test_a_request_that_makes_no_sense_is_refused(model: RewardModel, body: bytes) -> None:
    with running(RewardServer(model)) as url:
        request = urllib.request.Request(f"{url}/score", body)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 400


def test_a_model_that_fails_is_no_score(model: RewardModel, monkeypatch: pytest.MonkeyPatch) -> None:
    server = RewardServer(model)
    monkeypatch.setattr(model, "scores", lambda asked: 1 / 0)
    with running(server) as url, pytest.raises(JudgeError, match="status 500"):
        asyncio.run(client(url).scores([(QUESTION, "yes")]))


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that is not a reward server. The path says what it answers."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        kind = self.path.split("/")[1]
        if kind in ("302", "307", "404"):
            self.send_response(int(kind))
            self.send_header("Location", "http://127.0.0.1:1/score?key=secret")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        if kind != "endless":
            self.wfile.write(f'{{"version": "1", "scores": {urllib.parse.unquote(kind)}}}'.encode())
            return
        with suppress(OSError):
            while True:
                self.wfile.write(b" ")
                time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("302", r"redirects to another address \(status 302\); name that address as the judge's who"),
        ("307", r"redirects to another address \(status 307\); name that address as the judge's who"),
        ("404", r"status 404; expected a server that answers POST http://.*/404/score, as interplay judge serve does"),
        ("[NaN]", "gave the score nan; expected finite numbers"),
        ("[1, 2]", "gave 2 scores for 1 replies; expected one for each"),
        ('"1"', "cannot be parsed"),
        ('["1"]', "cannot be parsed"),
        ("[true]", "cannot be parsed"),
        ('{"1": 2}', "cannot be parsed"),
        ("endless", r"failed 1 times; the last time: no whole answer within 0\.5 s"),
    ],
)
def test_what_is_no_score_is_a_typed_failure(kind: str, said: str) -> None:
    """An answer that never ends counts as none, and its thread ends too: otherwise the run could not end."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{urllib.parse.quote(kind)}"
        began = time.monotonic()
        with pytest.raises(JudgeError, match=said) as failed:
            asyncio.run(client(url, timeout=0.5).scores([(QUESTION, "yes")]))
        assert "secret" not in str(failed.value)
        assert time.monotonic() - began < 20
        server.shutdown()


def test_without_a_token_only_this_machine_may_ask() -> None:
    check_address("127.0.0.1", "")
    check_address("0.0.0.0", "token")
    with pytest.raises(ConfigError, match="other machines can reach"):
        check_address("0.0.0.0", "")

"""A remote model with a real server: what is sent, what comes back, and how it is stopped."""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Chat, completion, serving
from failures import FAILURES

from interplay.agents.player import Stamp
from interplay.agents.remote import RemoteAgent
from interplay.config import RemoteSection, parse
from interplay.engines.engine import Request, Sampling
from interplay.engines.openai import RemoteEngine
from interplay.envs import Env
from interplay.errors import ConfigError, EngineError, RemoteError
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Speech, Team
from interplay.types import (
    Completion,
    Episode,
    Media,
    Message,
    Observation,
    Occupant,
    Parameter,
    Policy,
    Remote,
    Rewards,
    Scripted,
    Status,
    Stop,
    Task,
    Tool,
    Turn,
)

SAID = (Message("system", "Play."), Message("user", "Your move?"))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


@pytest.fixture
def chat() -> Iterator[Chat]:
    with serving(Chat(answer=lambda body: "hello")) as chat:
        yield chat


def ask(chat: Chat, count: int = 1, requests: int = 1, **section: Any) -> list[Completion]:
    settings = {"url": chat.url, "timeout": 60.0, "retries": 2, **section}
    engine = RemoteEngine("some-model", RemoteSection(**settings))
    sampling = Sampling(0.7, 9)

    async def several() -> list[Completion]:
        made = [Request((i,), (), 7 + i, sampling, messages=SAID) for i in range(requests)]
        return list(await asyncio.gather(*map(engine.generate, made)))

    try:
        for _ in range(count):  # each on an event loop of its own, as a trainer's steps are
            found = asyncio.run(several())
        return found
    finally:
        engine.close()


def test_what_is_sent_and_what_comes_back(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages, limits and the seed are sent; text, the server's token count and the reason for the end come back.
    There are no ids and no log-probs; connections outlive an event loop."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret-1")
    (found,) = ask(chat, count=2, options={"top_p": 0.5})
    assert (found.text, found.used, found.stop) == ("hello", 6, Stop.END)
    assert (found.tokens, found.logprobs) == ((), ())
    assert len(chat.bodies) == 2
    assert chat.bodies[0] == {
        "model": "some-model", "temperature": 0.7, "max_tokens": 9, "seed": 7, "top_p": 0.5,
        "messages": [{"role": "system", "content": "Play."}, {"role": "user", "content": "Your move?"}],
    }  # fmt: skip
    assert chat.keys == ["Bearer secret-1"] * 2
    ask(chat, limit="max_completion_tokens")
    assert chat.bodies[-1]["max_completion_tokens"] == 9 and "max_tokens" not in chat.bodies[-1]


def test_nothing_of_the_environment_is_sent_but_the_key(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    """The openai package would send an organisation and headers from variables that are meant for OpenAI's server."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret-1")
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "secret-2")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Gateway: secret-2\nAuthorization: secret-2")
    ask(chat)
    assert chat.heads[0]["authorization"] == "Bearer secret-1" and "secret-2" not in str(chat.heads)
    monkeypatch.delenv("OPENAI_API_KEY")
    ask(chat)
    assert "authorization" not in chat.heads[1]


def test_a_missing_package_is_named(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=r"needs the openai package: pip install 'interplay\[remote\]'"):
        ask(chat)


def test_a_proxy_that_cannot_be_used_is_said_without_its_password(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://user:pass-word@host:1")
    with pytest.raises(ConfigError, match=r"the connection to .* cannot be set up .* HTTP_PROXY") as caught:
        ask(chat)
    assert "pass-word" not in "".join(traceback.format_exception(caught.value))


def test_pauses_grow_and_the_server_may_ask_for_longer(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("openai._base_client.anyio.sleep", noted)
    chat.script = [500] * 4
    ask(chat, retries=4)
    assert len(pauses) == 4 and all(after > before for before, after in itertools.pairwise(pauses))
    chat.script, chat.headers = [429], {"Retry-After": "0.3"}
    ask(chat)
    assert pauses[4:] == [0.3] and len(chat.bodies) == 5 + 2


def test_a_server_that_cannot_be_reached_is_an_error_that_says_so(chat: Chat) -> None:
    with pytest.raises(RemoteError, match=r"gave no answer: ConnectError: .* \(tried 2 times\)"):
        ask(Chat(url="http://127.0.0.1:9/v1"), retries=1)
    with pytest.raises(ConfigError, match=r"remote.url is 'localhost/v1'; expected http:// or https://"):
        ask(Chat(url="localhost/v1"))


def test_a_refusal_and_a_reply_that_is_all_thinking_are_answers(chat: Chat) -> None:
    """A refusal is what the model said. A reply that reached its limit before its first word was cut off by the model
    itself, not by the server."""
    chat.reply = {"message": {"content": None, "refusal": "I will not."}}
    assert ask(chat)[0].text == "I will not."
    for nothing in (None, ""):
        chat.reply = {"message": {"content": nothing}, "finish_reason": "length"}
        assert ask(chat)[0] == Completion((), (), (), Stop.LENGTH, "", 6)


def test_a_compressed_answer_without_a_content_type_is_read(chat: Chat) -> None:
    packed = gzip.compress(completion("hello"))
    chat.script = [
        lambda handler: handler.send(200, packed, {"Content-Encoding": "gzip", "Content-Type": "text/plain"})
    ]
    assert ask(chat)[0].text == "hello" and len(chat.bodies) == 1


def test_no_more_requests_at_once_than_allowed(chat: Chat) -> None:
    three = threading.Event()

    def answer(body: dict[str, Any]) -> str:
        if chat.most >= 3:
            three.set()
        three.wait(60)  # nobody is answered before three requests are there
        return "hello"

    chat.answer = answer
    assert len(ask(chat, requests=12, concurrency=3)) == 12
    assert chat.most == 3


def test_a_cancelled_request_leaves_and_a_closed_engine_says_so(chat: Chat) -> None:
    chat.hold = 60
    engine = RemoteEngine("m", RemoteSection(url=chat.url, concurrency=1))
    request = Request((0,), (), 7, Sampling(), messages=SAID)

    async def cancelled() -> None:
        first = asyncio.ensure_future(engine.generate(request))
        while not chat.running:
            await asyncio.sleep(0.01)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        chat.hold = 0.0
        assert (await engine.generate(request)).text == "hello", "the only place is free again"

    asyncio.run(cancelled())
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="the engine is closed"):
        asyncio.run(engine.generate(request))


def test_a_request_is_cancelled_by_its_key_and_the_counters_follow(chat: Chat) -> None:
    go_on = threading.Event()
    chat.answer = lambda body: "hello" if go_on.wait(60) else "late"
    engine = RemoteEngine("m", RemoteSection(url=chat.url, concurrency=2))
    assert (engine.capabilities.media, engine.limits().context_tokens) == ({"image"}, None)

    async def go() -> None:
        made = [Request((i,), (), 7, Sampling(), messages=SAID) for i in range(3)]
        waiting = [asyncio.ensure_future(engine.generate(request)) for request in made]
        while chat.running < 2:
            await asyncio.sleep(0.01)
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.sampled_tokens) == (2, 1, 0)
        assert engine.cancel((0,)) and not engine.cancel((7,))
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        go_on.set()
        assert [c.text for c in await asyncio.gather(*waiting[1:])] == ["hello", "hello"]
        assert (engine.stats().running, engine.stats().sampled_tokens) == (0, 12)

    asyncio.run(go())
    engine.close()


def test_closing_is_an_error_for_requests_that_wait(chat: Chat) -> None:
    chat.hold = 60
    engine = RemoteEngine("m", RemoteSection(url=chat.url))

    async def go() -> None:
        waiting = asyncio.ensure_future(engine.generate(Request((0,), (), 7, Sampling(), messages=SAID)))
        while not chat.running:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(engine.close)
        with pytest.raises(EngineError, match="closed while this request was in flight"):
            await waiting

    asyncio.run(go())


def test_what_a_remote_model_cannot_do_is_said(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = RemoteEngine("m", RemoteSection(url=chat.url))
    assert not engine.capabilities.token_ids and not engine.capabilities.logprobs
    with pytest.raises(EngineError, match="gives no log-probs"):
        asyncio.run(engine.score((1,), [(2,)]))
    with pytest.raises(EngineError, match="without messages"):
        asyncio.run(engine.generate(Request((0,), (1,), 7, Sampling())))
    engine.close()
    with pytest.raises(ConfigError, match="environment variable NO_SUCH_KEY, which is not set"):
        RemoteEngine("m", RemoteSection(key_variable="NO_SUCH_KEY"))


def test_pictures_go_along_unless_the_model_cannot_see(chat: Chat) -> None:
    """As parts of the message, in a data URL; sounds are not sent, and `images = false` sends only the words."""
    image = b"\x89PNG..."
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    seen = (Message("user", "What is this?", media=(Media("audio", b"RIFF"), Media("image", image))),)
    for section, wanted in (
        ({}, [{"type": "text", "text": "What is this?"},
              {"type": "image_url", "image_url": {"url": url}}]),
        ({"images": False}, "What is this?"),
    ):  # fmt: skip
        engine = RemoteEngine("m", RemoteSection(url=chat.url, **section))
        asyncio.run(engine.generate(Request((0,), (), 7, Sampling(), messages=seen)))
        engine.close()
        assert chat.bodies[-1]["messages"] == [{"role": "user", "content": wanted}]


PICTURE = Media("image", b"\x89PNG")


class Shown(Env):
    """One turn with a picture and a tool."""

    roles = ("finder",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said = ""

    def observe(self) -> dict[str, Observation]:
        look = Tool("look", "Looks at a cell.", (Parameter("cell", "its number", "integer"),), lambda cell: f"x{cell}")
        message = Message("user", "What is in cell 3?", media=(PICTURE,))
        return {} if self.said else {"finder": Observation((message,), tools=(look,))}

    def step(self, actions: dict[str, str]) -> Rewards:
        self.said = actions["finder"]
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("found", float(self.said == "x3"))

    def state(self) -> str:
        return self.said


def test_a_remote_model_sees_and_calls_tools(chat: Chat, tmp_path: Path) -> None:
    """Tools are described in its first message and called with a line; the output is in its next request. The episode's
    record has the picture and the calls. A text model in the same seat gets the words."""
    from interplay.rollout import records

    chat.answer = lambda body: "x3" if body["messages"][-1]["content"] == "x3" else "@look 3"
    recipe = parse({
        "name": "t", "device": "cpu", "env": {"name": "tictactoe"}, "algorithm": {"name": "grpo"},
        "seats": {"X": "eye", "O": "player"},
        "policies": {"player": {"base": "tiny-16x1"}, "eye": {"base": "openai:gpt", "trainable": False,
                                                             "remote": {"url": chat.url, "retries": 0}}},
        "sampling": {"max_tokens": 4},
    })  # fmt: skip
    team = Team(recipe)
    task = Task("t", "shown", 0)

    def play(who: Occupant) -> Turn:
        env = Shown(task)
        agent = team.agent("finder", who, Speech(1.0, 8))
        view = agent.look(env.observe()["finder"])
        turn = asyncio.run(agent.sample(env, view, Stamp(0, task, 0, "e", 0)))
        agent.commit(view, turn)
        episode = Episode("e", task, 0, {"finder": who}, [turn])
        records.write(tmp_path / f"{who}.jsonl", [episode], step=1)
        (record,) = records.read(tmp_path / f"{who}.jsonl")
        assert record.episode == episode
        return turn

    try:
        turn = play(Remote("eye"))
        assert turn.text == "x3" and [s.text for s in turn.samples] == ["@look 3", "x3"] and turn.keys.tool == "look"
        assert turn.samples[0].messages[0].media == (PICTURE,) and turn.sampled == len("@look 3x3") + 2
        assert not turn.is_model and [s.extends for s in turn.samples] == [None, None]
        first, second = (body["messages"] for body in chat.bodies)
        assert first[0]["content"][0]["text"].endswith("@look CELL: Looks at a cell.")
        assert [m["role"] for m in second] == ["user", "assistant", "user"]
        assert not any(m.media for m in play(Policy("player")).samples[0].messages)
    finally:
        team.close()


# -- in a recipe ------------------------------------------------------------------------------------------------------


def recipe(chat: Chat, **rival: Any) -> dict[str, Any]:
    remote = {"url": chat.url, "retries": 0}
    return {
        "name": "t", "device": "cpu", "env": {"name": "tictactoe", "memory": True},
        "policies": {"player": {"base": "tiny-16x1"},
                     "rival": {"base": "openai:gpt", "trainable": False, "remote": remote, **rival}},
        "seats": {"X": "rival", "O": "player"}, "algorithm": {"name": "grpo"}, "sampling": {"max_tokens": 2},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rival", "says"),
    [
        ({"trainable": True}, r"policies.rival is the remote model 'openai:gpt', which gives neither token ids nor "
                              r"log-probs, so it cannot be trained; set policies.rival.trainable = false\."),
        ({"adapter": {"rank": 4}}, r"policies.rival.adapter cannot be added to the remote model"),
        ({"base": "tiny"}, r"policies.rival.remote is set, but base is 'tiny'; expected a base such as 'openai:NAME'"),
        ({"remote": {"options": {"stream": True}}}, r"remote.options has 'stream', which Interplay sets itself"),
        ({"remote": {"url": "http://host:port/v1"}}, r"remote.url is 'http://host:port/v1'; expected http:// or https"),
        ({"remote": {"urll": "x"}}, r"unknown key 'urll' in \[policies.rival.remote\].*Did you mean 'url'"),
    ],
)  # fmt: skip
def test_a_recipe_that_asks_too_much_is_refused(chat: Chat, rival: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(recipe(chat, **rival))


def test_a_remote_model_plays_a_seat(chat: Chat, tmp_path: Path) -> None:
    """It sees the whole conversation, its words are the moves, and the episode has the server's token count."""
    from interplay.algorithms import Independent
    from interplay.rollout import records
    from interplay.rollout.runner import Runner

    chat.answer = lambda body: str(len(body["messages"]) + 3)  # 5 (rules, board), then 7 (and its move, and a board)
    plan = resolve(parse(recipe(chat)))
    team = Team(plan.recipe)
    try:
        assert isinstance(team.agent("X", plan.seats["X"], Speech(1.0, 4)), RemoteAgent)
        with pytest.raises(ConfigError, match="Did you mean 'rival'"):
            team.agent("X", Remote("rivel"), Speech(1.0, 4))
        runner = Runner(0, plan.recipe.rollout, Independent(), plan.recipe.reward)
        seats: dict[str, Occupant] = {"X": Remote("rival"), "O": Scripted("first")}
        play = lambda: asyncio.run(runner.run([plan.task(0)], team.seating(lambda _: seats, Speech(1.0, 4))))[0]  # noqa: E731
        episode = play()
        assert episode.error is None
        mine = episode.line("X")
        assert [t.text for t in mine[:2]] == ["5", "7"] and mine[0].sampled == 2 and not mine[0].is_model
        records.write(tmp_path / "episodes.jsonl", [episode], step=1)
        assert [r.episode for r in records.read(tmp_path / "episodes.jsonl")] == [episode]
        chat.reply = {"finish_reason": "length"}
        assert play().line("X")[0].status is Status.LENGTH
        for failure in FAILURES:
            if not failure.is_slow:
                chat.script = [failure.wrong]
                lost = play()
                assert "RemoteError: remote model 'gpt'" in (lost.error or ""), failure
                assert not lost.line("X"), "a failure is never a move"
    finally:
        team.close()

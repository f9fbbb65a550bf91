"""Attach mode: a service opens sessions for the episodes that wait."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from interplay import envs
from interplay.envs.programs import attach
from interplay.envs.programs.gateway import gateway
from interplay.errors import ConfigError, EnvError
from interplay.types import Task

TOKEN = "a secret of the user's"


def post(path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{gateway().port}{path}"
    request = urllib.request.Request(url, json.dumps(body or {}).encode(), {"authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def serve_one() -> None:
    """A session as a service would have it: the reward is how long the reply was."""
    status, session = post("/attach")
    while status == 503:  # no episode waits yet
        time.sleep(0.05)
        status, session = post("/attach")
    assert status == 201
    client = openai.OpenAI(base_url=session["url"], api_key=session["key"], max_retries=0)
    messages: Any = [{"role": "user", "content": f"task {session['task']['index']}"}]
    said = client.chat.completions.create(model="planner", messages=messages).choices[0].message.content
    assert post(f"/s/{session['key']}/end", {"rewards": {"score": float(len(said or ""))}})[0] == 200


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Task]]:
    monkeypatch.setenv("INTERPLAY_ATTACH_TOKEN", TOKEN)
    options = {"attach": True, "roles": ["planner"]}
    yield [envs.sample_task("program", options, "train", index) for index in range(4)]


def test_the_trainer_waits_for_as_many_sessions_as_it_needs(tasks: list[Task], players: Any) -> None:
    gateway()
    with ThreadPoolExecutor(4) as services:
        done = [services.submit(serve_one) for _ in tasks]
        episodes = players.play(tasks)
        for one in done:
            one.result()
    assert [e.error for e in episodes] == [None] * 4
    for episode in episodes:
        (reward,) = episode.rewards
        assert reward.value == len(episode.turns[0].text)


def test_a_wrong_token_opens_nothing_and_a_services_error_is_a_crash(tasks: list[Task]) -> None:
    env = envs.make(tasks[0])
    failed: list[Exception] = []

    def observe() -> None:
        try:
            env.observe()
        except EnvError as error:
            failed.append(error)

    waits = threading.Thread(target=observe)
    waits.start()
    while post("/attach", token="guess")[0] == 503:
        time.sleep(0.01)
    assert post("/attach", token="guess")[0] == 401
    _, session = post("/attach")
    assert post(f"/s/{session['key']}/end", {})[0] == 400
    assert post(f"/s/{session['key']}/end", {"error": {"kind": "OOM", "words": "no memory", "place": "x"}})[0] == 200
    waits.join(60)
    assert "OOM at x: no memory" in str(failed[0])


def test_a_service_that_is_gone_gets_no_episode(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection was lost while it waited. The next service gets the episode."""
    monkeypatch.setattr(attach, "PATIENCE", 600.0)
    door = attach.Door()
    gateway().attach = door
    body = f"POST /attach HTTP/1.1\r\nhost: 127.0.0.1:{gateway().port}\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway().port)) as gone:
        gone.sendall(body.encode())
        wait_for(lambda: bool(door._services))
    wait_for(lambda: door._services[0].done())
    env = envs.make(tasks[0])
    waits = threading.Thread(target=env.observe)
    waits.start()
    status, session = post("/attach")
    while status == 503:
        status, session = post("/attach")
    assert status == 201
    client = openai.OpenAI(base_url=session["url"], api_key=session["key"], max_retries=0)
    with ThreadPoolExecutor(1) as service:
        messages: Any = [{"role": "user", "content": "hi"}]
        asked = service.submit(client.chat.completions.create, model="planner", messages=messages)
        waits.join(60)
        assert set(env.observe()) == {"planner"}
        env.step({"planner": "hello"})
        assert asked.result(60).choices[0].message.content == "hello"
    env.close()


def wait_for(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_without_a_token_nobody_can_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERPLAY_ATTACH_TOKEN", raising=False)
    env = envs.make(envs.sample_task("program", {"attach": True, "roles": ["planner"]}))
    with pytest.raises(ConfigError, match="INTERPLAY_ATTACH_TOKEN is not set"):
        env.observe()

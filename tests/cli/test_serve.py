"""`interplay serve` and `interplay check` of a program."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest
from typer.testing import CliRunner

from interplay.agents.model import ModelAgent
from interplay.agents.render import Renderer
from interplay.cli.main import app
from interplay.cli.serve import ServedTeam, TeamServer, _plan
from interplay.config import load
from interplay.engines.engine import Sampling
from interplay.engines.local import LocalEngine
from interplay.envs.programs.options import OutsideOptions
from interplay.errors import ConfigError, EngineError

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"answer": {"enum": ["yes", "no"]}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    },
}
TEAMS = Path(__file__).parents[1] / "envs" / "programs" / "teams"


class Running:
    """A served team with a tiny model, on a loop of its own."""

    def __init__(self, loaded: Any) -> None:
        self.engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
        renderer = Renderer(loaded.tokenizer, loaded.stop_ids)
        agents = {
            role: ModelAgent(role, "player", False, self.engine, renderer, Sampling(1.0, 6, loaded.stop_ids))
            for role in ("planner", "solver")
        }
        self.server = TeamServer(
            ServedTeam(OutsideOptions(attach=True, roles=list(agents)), agents, 0), "key", "127.0.0.1", 0
        )
        self.began = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()))
        self.thread.start()
        assert self.began.wait(300)
        self.base = f"http://127.0.0.1:{self.server.http.port}"

    async def main(self) -> None:
        ready, self.stop = asyncio.Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(self.server.run(ready, self.stop))
        await ready.wait()
        self.began.set()
        await running

    def close(self) -> None:
        if self.thread.is_alive():  # a test may have stopped the server
            with suppress(RuntimeError):  # or it ends at this moment
                self.loop.call_soon_threadsafe(self.stop.set)
        self.thread.join(60)
        self.engine.close()


@pytest.fixture
def running(tiny: Any) -> Iterator[Running]:
    made = Running(tiny)
    yield made
    made.close()


def test_a_trained_team_answers_recognises_its_replies_and_counts(running: Running) -> None:
    client = openai.OpenAI(base_url=f"{running.base}/v1", api_key="key", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    first = client.chat.completions.create(model="planner", messages=messages, n=2)
    assert len(first.choices) == 2
    said = first.choices[1].message.content  # a program may go on from any of them
    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "go on"}]
    client.chat.completions.create(model="planner", messages=messages)
    with urllib.request.urlopen(f"{running.base}/metrics", timeout=30) as answer:
        found = answer.read().decode()
    assert 'interplay_calls_total{role="planner"} 2' in found
    assert 'interplay_history_kept_total{role="planner"} 1' in found
    with urllib.request.urlopen(f"{running.base}/health", timeout=30) as answer:
        assert b"solver" in answer.read()
    stranger = openai.OpenAI(base_url=f"{running.base}/v1", api_key="other", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        ("many words " * 3000, {}, "this model reads at most"),
        ("hi", {"response_format": SCHEMA, "max_tokens": 1}, "at most 1 may be sampled"),
    ],
    ids=["too long", "no room for a legal reply"],
)
def test_a_request_that_can_never_be_served_is_the_fault_of_its_sender(
    running: Running, content: str, more: dict[str, Any], says: str
) -> None:
    """It got 503, after which clients ask again. They would get the same answer each time."""
    client = openai.OpenAI(base_url=f"{running.base}/v1", api_key="key", max_retries=0)
    with pytest.raises(openai.BadRequestError, match=says):
        client.chat.completions.create(model="solver", messages=[{"role": "user", "content": content}], **more)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_an_address_that_cannot_be_used_is_one_sentence(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        team: Any = None
        server = TeamServer(team, "key", host, other.getsockname()[1])
        with pytest.raises(EngineError, match=rf"cannot listen on port \d+ of '{host}' \(\w.*choose another"):
            asyncio.run(server.run(asyncio.Event(), asyncio.Event()))


def test_a_call_whose_client_has_gone_is_given_up(running: Running) -> None:
    """Otherwise all other callers wait for answers that nobody reads."""
    for agent in running.server.team.agents.values():
        assert isinstance(agent, ModelAgent)
        agent.sampling = replace(agent.sampling, max_tokens=3000, stop=())
    body = json.dumps({"model": "solver", "messages": [{"role": "user", "content": "hi"}], "n": 8}).encode()
    with socket.create_connection(("127.0.0.1", running.server.http.port)) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer key\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        while not running.server.http.busy:
            time.sleep(0.01)
    until = time.monotonic() + 60
    while running.server.http.busy and time.monotonic() < until:
        time.sleep(0.01)
    counts = running.server.team.counts
    assert (running.server.http.busy, counts["abandoned", "solver"], counts["tokens", "solver"]) == (0, 1, 0)


def test_calls_in_flight_are_answered_before_the_server_ends(running: Running) -> None:
    client = openai.OpenAI(base_url=f"{running.base}/v1", api_key="key", max_retries=0)
    answers: list[str] = []

    def ask() -> None:
        found = client.chat.completions.create(model="solver", messages=[{"role": "user", "content": "hi"}], n=16)
        answers.extend(str(c.message.content) for c in found.choices)

    asking = threading.Thread(target=ask)
    asking.start()
    while not running.server.http.busy and asking.is_alive():
        pass
    running.loop.call_soon_threadsafe(running.stop.set)
    asking.join(600)
    assert len(answers) == 16


SERVED = """
name = "served"
device = "cpu"
seats = "player"
[env]
name = "tictactoe"
[policies.player]
base = "tiny-16x1"
[algorithm]
name = "grpo"
[sampling]
max_tokens = 1600
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_when_the_calls_in_flight_are_answered(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The real process: while a call is being answered it is told to end. New calls are refused, the call gets its
    whole answer, and the command ends without an error."""
    (tmp_path / "served.toml").write_text(SERVED)
    patient = "from interplay.cli import main, serve; serve.PATIENCE = 600.0; main.main()"  # for a busy machine
    command = [sys.executable, "-c", patient, "serve", str(tmp_path / "served.toml"), "--port", "0"]
    env = {**os.environ, "INTERPLAY_SERVE_KEY": "key", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        answers: list[openai.types.chat.ChatCompletion] = []
        client = openai.OpenAI(base_url=f"{found[0]}/v1", api_key="key", max_retries=0)
        play: Any = [{"role": "user", "content": "play"}]
        asking = threading.Thread(
            target=lambda: answers.append(client.chat.completions.create(model="X", messages=play, n=8))
        )
        asking.start()
        while asking.is_alive() and "in_flight 1" not in fetched(f"{found[0]}/metrics"):
            time.sleep(0.01)
        assert not answers
        process.send_signal(number)
        refused = None
        while refused is None and asking.is_alive():
            try:
                fetched(f"{found[0]}/health")
            except OSError as error:
                refused = error
        assert refused is not None and not answers, "it stops to listen before the call is answered"
        asking.join(600)
        assert len(answers[0].choices) == 8 and answers[0].usage is not None
        assert process.wait(600) == 0
    finally:
        process.kill()
        _, errors = process.communicate()
    assert "Traceback" not in errors


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_program_is_not_needed_where_its_team_is_served(tmp_path: Path) -> None:
    """In production the program runs elsewhere, without the tasks of the training."""
    path = tmp_path / "recipe.toml"
    env = """[env]
name = "program"
function = "not_here:run"
reward = "not_here:reward"
data = "not_here.jsonl"
roles = ["planner", "solver"]
"""
    path.write_text(SERVED.partition("[env]")[0] + env + "[policies" + SERVED.partition("[policies")[2])
    plan = _plan(load(path))
    assert plan.roles == ("planner", "solver") and plan.saved
    path.write_text(path.read_text().replace('roles = ["planner", "solver"]', ""))
    with pytest.raises(ConfigError, match=r"env\.roles"):
        _plan(load(path))


@pytest.mark.parametrize(("team", "code", "said"), [("two", 0, "history new"), ("never_the_same", 1, "and is now")])
def test_check_runs_a_program_twice_and_prints_the_first_difference(
    team: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TEAMS))
    options = [f"coroutine=small_teams:{team}", "reward=small_teams:length", 'roles=["planner","solver"]']
    found = CliRunner().invoke(app, ["check", "program", *options, "--episodes", "2"])
    assert found.exit_code == code, found.output
    assert said in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("asks_a_stranger", 1, "is no role; known: planner"),
        ("must_be_a_number", 0, "ValueError at"),
        ("calls_a_tool", 0, "history kept"),
    ],
)
def test_check_says_how_a_program_fails_and_gives_the_replies_that_it_requires(
    function: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that nobody can train must not pass, and one that requires a call gets a call."""
    monkeypatch.syspath_prepend(str(TEAMS))
    options = [f"function=commands:{function}", "reward=commands:length", 'roles=["planner"]']
    found = CliRunner().invoke(app, ["check", "program", *options, "--episodes", "2"])
    assert found.exit_code == code, found.output
    printed = " ".join(found.output.split())
    assert said in printed
    assert f"tasks whose program crashed after such replies │ {2 * (function == 'must_be_a_number')} │" in printed

"""A person in a seat of an outside program, beside agents that call tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interplay import envs
from interplay.agents.player import View
from interplay.config import ToolSection
from interplay.envs.tools import calculator
from interplay.rollout.guest import Guest, GuestGame, PersonsTools
from interplay.types import Keys, Message, Observation, Policy, Spoken, ToolCall, Turn

TEAMS = Path(__file__).parents[1] / "envs" / "programs" / "teams"


class Caller:
    """An agent that calls the tool `add`."""

    trainable = False

    def look(self, observation: Observation) -> View:
        return View(observation)

    async def sample(self, env: Any, view: View, stamp: Any) -> Turn:
        keys = Keys("", 0, "", 0, "solver", "", "", "")
        spoken = Spoken("", (ToolCall("1", "add", '{"a": 4}'),))
        return Turn("t", None, keys, "caller", "@add 4", view.observation, spoken=spoken)

    def commit(self, view: View, turn: Turn) -> None: ...


def played(says: Callable[[Observation], str | None], monkeypatch: pytest.MonkeyPatch) -> tuple[bool, Any]:
    monkeypatch.syspath_prepend(str(TEAMS))
    options = {"coroutine": "small_teams:tooled", "reward": "small_teams:length", "roles": ["planner", "solver"]}
    env: Any = envs.make(envs.sample_task("program", options))

    async def reply(observation: Observation) -> str | None:
        return says(observation)

    guest = Guest(reply, lambda role, text: None, lambda rewards: None)
    game = GuestGame(env, "planner", {"solver": Policy("caller")}, {"solver": Caller()}, guest)  # type: ignore[dict-item]
    whole = asyncio.run(game.play(0))
    return whole, env._run.result


def test_a_person_calls_the_tools_of_a_program_and_chooses_from_its_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Observation] = []

    def says(observation: Observation) -> str:
        seen.append(observation)
        return "right" if observation.legal else "@add 3"

    whole, result = played(says, monkeypatch)
    assert whole and result == [[["add", '{"a": 3}']], [["add", '{"a": 4}']], "right"]
    assert "add" in seen[0].messages[0].content, "the tool is described"
    assert seen[1].legal == ("left", "right")


def test_a_person_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, result = played(lambda observation: None, monkeypatch)
    assert not whole and result is None


def test_a_person_calls_tools_until_none_are_left() -> None:
    """A call with a mistake counts, its answer says what is wrong, and long outputs are cut. Afterwards every reply is
    the move."""
    seen = Observation((Message("user", "6 times 7?"),), tools=(calculator(),))
    tools = PersonsTools(seen, ToolSection(calls=2, characters=5))
    assert "@calculator EXPRESSION" in tools.told and tools.outputs("42") == [] and tools.left == 2
    assert tools.outputs("@calculator 6*7") == ["42"] and tools.left == 1
    assert tools.outputs("@calculate 6*7")[0].startswith("error\n… (") and tools.left == 0
    assert tools.outputs("@calculator 6*7") == [] and tools.left == 0 and tools.told == ""
    none = PersonsTools(Observation((Message("user", "6 times 7?"),)), ToolSection())
    assert none.told == "" and none.outputs("@calculator 6*7") == []

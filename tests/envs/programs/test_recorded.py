"""What each framework really sends (recorded/, see recording.py) is understood, and its history is recognised."""

from __future__ import annotations

import http.client
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from recording import FOLDER, ROOT, reply

from interplay.agents.memory import Memory
from interplay.agents.render import Renderer
from interplay.config import load
from interplay.envs.programs.gateway import HttpRun
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import Inquiry, Reply
from interplay.types import Sample

# How often a framework's requests tell a seat's own replies so that they are recognised, by how.
RECOGNISED = {
    "ag2": {"new": 2, "kept": 3},
    "agents_sdk": {"new": 3, "kept": 1},
    "autogen": {"new": 2, "kept": 2},
    "langgraph": {"new": 1, "foreign": 2, "kept": 1},  # all agents share one list of messages
    "llama_index": {"new": 2, "foreign": 1, "kept": 1},  # the solver reads the planner as an assistant
    "openai": {"new": 2},
    "pydantic_ai": {"new": 2, "kept": 2},
    "smolagents": {"new": 1, "edited": 1, "kept": 1},  # calls come back as prose
}


def answered(name: str) -> tuple[list[Inquiry], list[int]]:
    """Every recorded request is sent again; the questions it was understood as, and the statuses of the answers."""
    recipe = load(ROOT / "recipes" / "programs" / f"{name}.toml")
    run = HttpRun(OutsideOptions.model_validate(recipe.env.options))
    asked: list[Inquiry] = []

    def answer() -> None:
        while not run.ended:
            run.settle_now()
            for one in run.waiting:
                asked.append(one)
                run.answer(one, Reply(reply(one)))

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    statuses = []
    connection = http.client.HTTPConnection("127.0.0.1", run.gateway.port)
    for request in json.loads((FOLDER / f"{name}.json").read_text()):
        connection.request("POST", f"/s/{run.key}/v1/{request['path']}", json.dumps(request["body"]))
        found = connection.getresponse()
        found.read()
        statuses.append(found.status)
    run.close()
    thread.join(10)
    return asked, statuses


def recognised(renderer: Renderer, asked: list[Inquiry]) -> Counter[str]:
    memories: dict[str, Memory] = {}
    found: Counter[str] = Counter()
    for number, one in enumerate(asked):
        memory = memories.get(one.role, Memory())
        recalled = memory.recall(renderer, one.messages, one.call)
        spoken = reply(one)
        action = renderer.encode_reply(spoken.content)
        sample = Sample(str(number), recalled.prompt.ids, action, (), (), spoken.content)
        memories[one.role] = memory.remember(recalled, one.call, spoken, renderer, sample)
        found["kept" if recalled.history == "template" else recalled.history] += 1
    return found


@pytest.mark.parametrize("name", sorted(p.stem for p in FOLDER.glob("*.json")))
def test_the_requests_of_a_framework_are_understood_and_its_history_recognised(name: str, tiny: Any) -> None:
    asked, statuses = answered(name)
    assert statuses == [200] * len(statuses)
    assert len(asked) == len(statuses)
    assert dict(recognised(Renderer(tiny.tokenizer, tiny.stop_ids), asked)) == RECOGNISED[name]


def test_every_framework_is_recorded() -> None:
    assert {p.stem for p in FOLDER.glob("*.json")} == set(RECOGNISED)
    assert {Path(p).stem for p in (ROOT / "recipes" / "programs").glob("*.toml")} >= set(RECOGNISED)

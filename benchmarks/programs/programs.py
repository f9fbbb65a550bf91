"""The programs that benchmarks/gateway.py runs, in the trainer's process or with a bare HTTP client.

`number` and `code` are tasks that a team can learn. In `number`, a planner is told a number and says one, and a solver
says it again. In `code`, a planner is told an animal and must say its number, and a solver who hears only the number
must say the animal. Which number stands for which animal is not in the prompts, so an untrained model has to guess.
`talk` is a conversation of ROUNDS rounds (an environment variable) in which anything can be said; it shows what a
rollout costs. programs_openai.py and programs_langgraph.py are the same with the openai package and as LangGraph
graphs. All of them ask the same, so that they differ in what they cost and not in what is learned.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

Row = Mapping[str, Any]
Chat = list[dict[str, str]]
ANIMALS = ("cat", "dog", "cow", "pig", "hen", "fox", "bee", "ant")


def rounds() -> int:
    return int(os.environ.get("ROUNDS", "4"))


def secret(row: Row) -> str:
    return str(1 + row["seed"] // 4 % 4)


def to_planner(row: Row) -> Chat:
    return [{"role": "user", "content": f"Your number is {secret(row)}. Tell it to player p1"}]


def to_solver(said: str) -> Chat:
    return [{"role": "user", "content": f"player p0 : {said}. Your number is"}]


def right(row: Row, result: Any) -> dict[str, float]:
    """The reward of the team: the solver says the secret. Two more rewards are for what this needs: the planner says
    the secret, and the solver says what the planner said."""
    if not isinstance(result, list):  # of a conversation that is only timed
        return {"score": 0.0}
    planned, solved = (str(text).strip() for text in result)
    told, heard = planned == secret(row), solved == planned
    return {"score": float(solved == secret(row)), "told": 0.5 * told, "heard": 0.5 * heard}


def animal(row: Row) -> str:
    return ANIMALS[row["seed"] // 4 % len(ANIMALS)]


def to_coder(row: Row) -> Chat:
    return [{"role": "user", "content": f"The animal is the {animal(row)}. What is its number? Reply with a digit."}]


def to_decoder(said: str) -> Chat:
    return [{"role": "user", "content": f"The number is {said}. Which animal is it? Reply with its name."}]


def decoded(row: Row, result: Any) -> Any:
    """The reward of the team: the solver names the animal. Each role also earns something for its half of the code."""
    from interplay.types import Rewards  # rewards are computed by the trainer; programs run without this package

    planned, solved = (str(text).strip() for text in result)
    told = planned == str(1 + ANIMALS.index(animal(row)))
    heard = planned.isdecimal() and solved == ANIMALS[int(planned) - 1]
    halves = Rewards.agent("told", {"planner": 0.5 * told}) + Rewards.agent("heard", {"solver": 0.5 * heard})
    return Rewards.team("score", float(solved == animal(row))) + halves


def more(chat: Chat, mine: str, theirs: str) -> None:
    chat += [{"role": "assistant", "content": mine}, {"role": "user", "content": theirs}]


async def number(row: Row, ask: Any) -> list[str]:
    planned = str(await ask("planner", to_planner(row)))
    return [planned, str(await ask("solver", to_solver(planned)))]


async def code(row: Row, ask: Any) -> list[str]:
    planned = str(await ask("planner", to_coder(row)))
    return [planned, str(await ask("solver", to_decoder(planned)))]


async def talk(row: Row, ask: Any) -> str:
    planning, solving = to_planner(row), to_solver("hello")
    for _ in range(rounds()):
        planned = str(await ask("planner", planning))
        solving[-1]["content"] += planned
        solved = str(await ask("solver", solving))
        more(planning, planned, solved)
        more(solving, solved, "and ")
    return solved


def bare_talk(row: Row) -> str:
    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(str(url.hostname), url.port)

    def ask(model: str, messages: Chat) -> str:
        connection.request("POST", f"{url.path}/chat/completions", json.dumps({"model": model, "messages": messages}))
        return str(json.loads(connection.getresponse().read())["choices"][0]["message"]["content"])

    return talked(row, ask)


def talked(row: Row, ask: Any) -> str:
    """`talk` for clients that block."""
    planning, solving = to_planner(row), to_solver("hello")
    for _ in range(rounds()):
        planned = ask("planner", planning)
        solving[-1]["content"] += planned
        solved = ask("solver", solving)
        more(planning, planned, solved)
        more(solving, solved, "and ")
    return str(solved)

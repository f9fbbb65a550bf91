"""smolagents: a manager who may hand the problem to a solver; both call tools as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: the first number
        b: the second number, which may be negative
    """
    return a + b


def model(name: str) -> OpenAIServerModel:
    return OpenAIServerModel(
        name, api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], max_tokens=48,
        tool_choice="auto",
    )  # fmt: skip


def run(task: Mapping[str, Any]) -> str:
    solver = ToolCallingAgent(
        [add], model("solver"), name="solver", description="Solves small sums.", max_steps=2, verbosity_level=0
    )
    manager = ToolCallingAgent([], model("planner"), managed_agents=[solver], max_steps=2, verbosity_level=0)
    return str(manager.run(task["question"]))

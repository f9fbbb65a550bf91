"""AG2 1.x: a planner and a solver with a tool; the solver's answer goes back to the planner, who approves it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from ag2 import Agent, tool
from ag2.config.openai import OpenAIConfig


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers; b may be negative."""
    return a + b


def model(name: str) -> OpenAIConfig:
    return OpenAIConfig(
        model=name, base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], max_tokens=48
    )


async def talk(task: Mapping[str, Any]) -> str:
    planner = Agent("planner", prompt="You plan. Say how to solve the problem.", config=model("planner"))
    solver = Agent("solver", prompt="You solve. End with the number.", config=model("solver"), tools=[add])
    plan = await planner.ask(task["question"])
    answer = await solver.ask(f"{task['question']}\nPlan: {plan.body}")
    verdict = await plan.ask(f"The solver says: {answer.body}\nReply 'fine', or what to change.")
    if "fine" not in (verdict.body or ""):
        answer = await answer.ask(verdict.body or "Try again.")
    return answer.body or ""


def run(task: Mapping[str, Any]) -> str:
    return asyncio.run(talk(task))

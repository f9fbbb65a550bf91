"""pydantic-ai: the planner's words become the solver's instructions; the solver has a tool and keeps its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits

LIMITS = UsageLimits(request_limit=4)


def run(task: Mapping[str, Any]) -> str:
    planner = Agent(OpenAIChatModel("planner"), system_prompt="You plan. Say how to solve the problem.", retries=1)
    solver = Agent(OpenAIChatModel("solver"), system_prompt="You solve. End with the number.", retries=1)

    @solver.tool_plain
    def add(a: int, b: int) -> int:
        """Adds two numbers; b may be negative."""
        return a + b

    try:
        plan = planner.run_sync(task["question"], model_settings={"max_tokens": 48}, usage_limits=LIMITS)
        first = solver.run_sync(
            f"{task['question']}\nPlan: {plan.output}", model_settings={"max_tokens": 48}, usage_limits=LIMITS
        )
        sure = solver.run_sync(
            "Are you sure? Say the number again.", message_history=first.all_messages(),
            model_settings={"max_tokens": 48}, usage_limits=LIMITS,
        )  # fmt: skip
    except AgentRunError as error:
        return f"no answer: {type(error).__name__}"
    return str(sure.output)

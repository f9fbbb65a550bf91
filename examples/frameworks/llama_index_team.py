"""LlamaIndex: an AgentWorkflow in which a planner hands over to a solver with a tool."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.workflow.errors import WorkflowRuntimeError
from llama_index.llms.openai_like import OpenAILike


def add(a: int, b: int) -> int:
    """Adds two numbers; b may be negative."""
    return a + b


def model(name: str) -> OpenAILike:
    return OpenAILike(
        model=name, api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], max_tokens=48,
        is_chat_model=True, is_function_calling_model=True, timeout=600.0,
    )  # fmt: skip


async def talk(task: Mapping[str, Any]) -> str:
    planner = FunctionAgent(
        name="planner", description="Plans.", system_prompt="You plan, then hand over to the solver.",
        llm=model("planner"), can_handoff_to=["solver"],
    )  # fmt: skip
    solver = FunctionAgent(
        name="solver", description="Solves.", system_prompt="You solve. End with the number.", llm=model("solver"),
        tools=[add],
    )  # fmt: skip
    first = AgentWorkflow(agents=[planner, solver], root_agent="planner", timeout=600.0)
    plan = await first.run(user_msg=task["question"], max_iterations=4)
    then = AgentWorkflow(agents=[solver], root_agent="solver", timeout=600.0)
    return str(await then.run(user_msg=f"{task['question']}\nPlan: {plan}", max_iterations=4))


def run(task: Mapping[str, Any]) -> str:
    try:
        return asyncio.run(talk(task))
    except WorkflowRuntimeError as error:  # too many rounds
        return f"no answer: {error}"

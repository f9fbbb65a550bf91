"""AutoGen: a planner and a solver take turns in a group chat of at most four messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

ABILITIES = {
    "vision": False, "function_calling": True, "json_output": False, "structured_output": False,
    "family": ModelFamily.UNKNOWN,
}  # fmt: skip


def model(name: str) -> OpenAIChatCompletionClient:
    """AutoGen must be told what a model that it does not know can do."""
    return OpenAIChatCompletionClient(
        model=name, base_url=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], max_tokens=48,
        model_info=ABILITIES,
    )  # fmt: skip


async def talk(task: Mapping[str, Any]) -> str:
    planner = AssistantAgent("planner", model("planner"), system_message="You plan. Say how to solve the problem.")
    solver = AssistantAgent("solver", model("solver"), system_message="You solve. End with the number and DONE.")
    ends = TextMentionTermination("DONE") | MaxMessageTermination(5)
    result = await RoundRobinGroupChat([planner, solver], termination_condition=ends).run(task=task["question"])
    said = [m for m in result.messages if m.source == "solver"]
    return str(said[-1].to_text()) if said else ""


def run(task: Mapping[str, Any]) -> str:
    return asyncio.run(talk(task))

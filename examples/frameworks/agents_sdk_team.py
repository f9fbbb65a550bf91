"""OpenAI Agents SDK: a planner whose tool is the solver, over the responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents import Agent, AgentsException, ModelSettings, Runner

SHORT = ModelSettings(max_tokens=48)


def run(task: Mapping[str, Any]) -> str:
    solver = Agent(name="Solver", instructions="You solve. End with the number.", model="solver", model_settings=SHORT)
    asks = solver.as_tool("ask_solver", "Asks the solver to carry out a plan.")
    planner = Agent(
        name="Planner", instructions="You plan, and ask the solver for the number.", model="planner", tools=[asks],
        model_settings=SHORT,
    )  # fmt: skip
    try:
        plan = Runner.run_sync(planner, task["question"], max_turns=4).final_output
        return str(Runner.run_sync(solver, f"{task['question']}\nPlan: {plan}", max_turns=2).final_output)
    except AgentsException as error:  # too many turns, a tool that does not exist, a reply that was cut off
        return f"no answer: {type(error).__name__}"

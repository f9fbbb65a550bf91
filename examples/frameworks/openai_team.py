"""A planner and a solver with nothing but the `openai` client: the solver may ask the planner back once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openai import OpenAI

PLAN = "You plan. In one short sentence, say how to solve the problem."
SOLVE = "You solve. Follow the plan and end with the number. If the plan is unclear, reply with a question instead."


def run(task: Mapping[str, Any]) -> str:
    client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY are set

    def say(model: str, messages: list[dict[str, str]]) -> str:
        reply = client.chat.completions.create(model=model, messages=messages, max_tokens=48)
        return reply.choices[0].message.content or ""

    planning = [{"role": "system", "content": PLAN}, {"role": "user", "content": task["question"]}]
    plan = say("planner", planning)
    solving = [
        {"role": "system", "content": SOLVE},
        {"role": "user", "content": f"Problem: {task['question']}\nPlan: {plan}"},
    ]
    answer = say("solver", solving)
    if answer.rstrip().endswith("?"):
        planning += [{"role": "assistant", "content": plan}, {"role": "user", "content": answer}]
        solving += [{"role": "assistant", "content": answer}, {"role": "user", "content": say("planner", planning)}]
        answer = say("solver", solving)
    return answer

"""RLHF as a LangGraph program: a user asks, a learner and a baseline answer, and a judge says which answer is better.

The judge sees both orders. It prefers the learner only if it says so in both; a verdict that changes with the order is
a tie. The recipe recipes/rlhf/langgraph.toml trains the learner with the verdict as its reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    topic: str
    question: str
    learner: str
    baseline: str
    verdicts: list[str]


def say(role: str, rules: str, text: str, tokens: int = 48) -> str:
    reply = ChatOpenAI(model=role, max_tokens=tokens).invoke([("system", rules), ("user", text)])
    return str(reply.content)


def user(state: State) -> State:
    """The context agent makes the situation."""
    asked = say("user", "You are a user of an assistant. Ask one short question about the topic.", state["topic"])
    return {"question": f"{state['topic']}\n{asked}"}


def learner(state: State) -> State:
    return {"learner": say("learner", "Answer the user's question.", state["question"])}


def baseline(state: State) -> State:
    return {"baseline": say("baseline", "Answer the user's question.", state["question"])}


def judge(state: State) -> State:
    rules = "You compare two answers. Reply with A if the first answer is better, and with B if the second one is."
    orders = ((state["learner"], state["baseline"]), (state["baseline"], state["learner"]))
    texts = [f"Question: {state['question']}\nA: {first}\nB: {second}" for first, second in orders]
    return {"verdicts": [say("judge", rules, text, tokens=4) for text in texts]}


def build() -> Any:
    graph = StateGraph(State)
    for node in (user, learner, baseline, judge):
        graph.add_node(f"{node.__name__}_node", node)
    graph.add_edge(START, "user_node")
    graph.add_edge("user_node", "learner_node")
    graph.add_edge("learner_node", "baseline_node")
    graph.add_edge("baseline_node", "judge_node")
    graph.add_edge("judge_node", END)
    return graph.compile()


def run(task: Mapping[str, Any]) -> dict[str, Any]:
    state = build().invoke({"topic": task["question"]})
    return {"verdicts": state["verdicts"]}

"""LangGraph: a planner, a solver with a calculator, and a checker who may send the solver back once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


class State(MessagesState):
    checks: int


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers; b may be negative."""
    return a + b


def planner(state: State) -> dict[str, Any]:
    rules = SystemMessage("You plan. In one short sentence, say how to solve the problem.")
    return {"messages": [ChatOpenAI(model="planner", max_tokens=48).invoke([rules, *state["messages"]])]}


def solver(state: State) -> dict[str, Any]:
    rules = SystemMessage("You solve. Follow the plan, use the tool if it helps, and end with the number.")
    model = ChatOpenAI(model="solver", max_tokens=48).bind_tools([add])
    return {"messages": [model.invoke([rules, *state["messages"]])]}


def checker(state: State) -> dict[str, Any]:
    rules = SystemMessage("You check. Reply with 'right', or say what is wrong.")
    reply = ChatOpenAI(model="checker", max_tokens=48).invoke([rules, *state["messages"]])
    return {"messages": [HumanMessage(reply.content, name="checker")], "checks": state.get("checks", 0) + 1}


def after_check(state: State) -> str:
    fine = "wrong" not in str(state["messages"][-1].content).lower() or state["checks"] > 1
    return END if fine else "solver"


def build() -> Any:
    graph = StateGraph(State)
    graph.add_node("planner", planner)
    graph.add_node("solver", solver)
    graph.add_node("tools", ToolNode([add]))
    graph.add_node("checker", checker)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "solver")
    graph.add_conditional_edges("solver", tools_condition, {"tools": "tools", END: "checker"})
    graph.add_edge("tools", "solver")
    graph.add_conditional_edges("checker", after_check, {END: END, "solver": "solver"})
    return graph.compile()


def run(task: Mapping[str, Any]) -> str:
    state = build().invoke({"messages": [HumanMessage(task["question"])]}, {"recursion_limit": 25})
    said = [m for m in state["messages"] if m.type == "ai"]
    return str(said[-1].content)

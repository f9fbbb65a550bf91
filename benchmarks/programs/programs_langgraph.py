"""`number` of programs.py as a LangGraph graph of two nodes."""

from __future__ import annotations

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from programs import Row, to_planner, to_solver


class State(TypedDict, total=False):
    row: Row
    planned: str
    answer: str


def planner(state: State) -> State:
    return {"planned": str(ChatOpenAI(model="planner").invoke(to_planner(state["row"])).content)}


def solver(state: State) -> State:
    return {"answer": str(ChatOpenAI(model="solver").invoke(to_solver(state["planned"])).content)}


def number(row: Row) -> list[str]:
    graph = StateGraph(State)
    graph.add_node("planner", planner)
    graph.add_node("solver", solver)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "solver")
    graph.add_edge("solver", END)
    end = graph.compile().invoke({"row": row})
    return [end["planned"], end["answer"]]

"""`number` and `code` of programs.py as LangGraph graphs of two nodes."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from programs import Row, to_coder, to_decoder, to_planner, to_solver


class State(TypedDict, total=False):
    row: Row
    planned: str
    answer: str


def _graph(planning: Any, solving: Any) -> Any:
    def planner(state: State) -> State:
        return {"planned": str(ChatOpenAI(model="planner").invoke(planning(state["row"])).content)}

    def solver(state: State) -> State:
        return {"answer": str(ChatOpenAI(model="solver").invoke(solving(state["planned"])).content)}

    graph = StateGraph(State)
    graph.add_node("planner", planner)
    graph.add_node("solver", solver)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "solver")
    graph.add_edge("solver", END)
    return graph.compile()


NUMBER, CODE = _graph(to_planner, to_solver), _graph(to_coder, to_decoder)


def number(row: Row) -> list[str]:
    end = NUMBER.invoke({"row": row})
    return [end["planned"], end["answer"]]


def code(row: Row) -> list[str]:
    end = CODE.invoke({"row": row})
    return [end["planned"], end["answer"]]

"""Makes workflows from other workflows by applying motifs. A motif is a complete change, because half of one does not
help: a check without retries only costs tokens. The motifs are AFlow's operators as data.

    vote        a node draws several replies, and the most frequent one is used
    ensemble    a node draws several replies, and its role picks from the list in another node
    review      a reviewer reads what a node said, and the node revises it
    test        a node tries again while a function says that it is wrong
    program     a node writes Python, which is run, and its role reads what it printed
    hand_over   a node asks another role
    drop        a node is removed

A `Design` is a base workflow and, for each of its nodes, the motifs that are switched on and their settings. A move
changes one of these switches. So the order of moves does not matter, and every move can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interplay.config import validate
from interplay.config.evolve import EvolveSection
from interplay.envs.workflows.graph import END, WorkflowSection
from interplay.errors import ConfigError

Graph = dict[str, Any]  # a workflow as plain values
Genes = dict[str, dict[str, Any]]  # by node, then by motif: its setting
VOTES = (3, 5)
TRIES = 2  # retries of a node that is tested


def plain(workflow: WorkflowSection) -> Graph:
    return workflow.model_dump(exclude_defaults=True)


def checked(graph: Any) -> WorkflowSection:
    """Return the workflow, or raise a `ConfigError` that says why it is not valid."""
    return validate(WorkflowSection, graph, "workflow")


@dataclass
class Design:
    """A base workflow and the motifs that are switched on in it."""

    base: Graph
    genes: Genes = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The workflow that this design describes."""
        out: Graph = json.loads(json.dumps(self.base))
        out.setdefault("start", next(iter(out["nodes"])))
        for name in list(out["nodes"]):
            genes = self.genes.get(name, {})
            if "drop" in genes:
                _drop(out, name)
                continue
            if "hand_over" in genes:
                out["nodes"][name]["role"] = genes["hand_over"]
            if "vote" in genes:
                out["nodes"][name].update(samples=genes["vote"], merge="vote")
            for motif, build in _BUILD.items():
                if motif in genes:
                    build(out, name, genes)
        return plain(checked(out))

    @property
    def key(self) -> str:
        """Two designs of the same workflow have the same key."""
        return json.dumps(self.graph, sort_keys=True)

    def to_json(self) -> dict[str, Any]:
        return {"base": self.base, "genes": self.genes}


def turned(design: Design, name: str, motif: str, value: Any) -> Design | None:
    """Return the design with one motif of one node set to `value`, or switched off if `value` is None. Return None if
    the result is not a valid workflow."""
    genes: Genes = {node: dict(on) for node, on in design.genes.items()}
    mine = genes.setdefault(name, {})
    if value is None:
        mine.pop(motif, None)
    else:
        mine[motif] = value
        for other in {"vote": ["ensemble"], "ensemble": ["vote"]}.get(motif, ()):
            mine.pop(other, None)
    made = Design(design.base, {node: on for node, on in genes.items() if on})
    try:
        made.graph  # noqa: B018
    except ConfigError:
        return None
    return made


def moves(design: Design, section: EvolveSection, roles: Sequence[str]) -> list[tuple[str, str, Any]]:
    """Return every possible move: a node, a motif, and its new setting."""
    out: list[tuple[str, str, Any]] = []
    working = [name for name, node in design.base["nodes"].items() if node.get("role")]
    for name in working:
        now = design.genes.get(name, {})
        settings: Mapping[str, Sequence[Any]] = {
            "vote": (None, *VOTES),
            "ensemble": (None, *VOTES),
            "review": (None, *roles),
            "test": (None, section.verify) if section.verify else (None,),
            "program": (None, True),
            "hand_over": (None, *(r for r in roles if r != design.base["nodes"][name]["role"])),
            "drop": (None, True) if len(working) > 1 else (None,),
        }
        for motif in section.motifs:
            out += [(name, motif, v) for v in settings[motif] if v != now.get(motif)]
    return out


# -- how motifs are built ---------------------------------------------------------------------------------------------


def _edges(graph: Graph, name: str) -> list[dict[str, Any]]:
    after = graph["nodes"][name].get("next", END)
    return [{"to": after}] if isinstance(after, str) else [dict(t) for t in after]


def _redirect(graph: Graph, old: str, new: str) -> None:
    """Make all transitions from other nodes to `old` lead to `new` instead."""
    if graph["start"] == old:
        graph["start"] = new
    for name, node in graph["nodes"].items():
        if name != old:
            edges = [{**t, "to": new} if t["to"] == old else t for t in _edges(graph, name)]
            node["next"] = edges[0]["to"] if len(edges) == 1 and len(edges[0]) == 1 else edges


def _ways(graph: Graph, name: str) -> list[dict[str, Any]]:
    """All ways on from a node. Where no transition is always taken, the last way is the end, which a workflow reaches
    if no condition holds."""
    edges = _edges(graph, name)
    return edges if any(len(t) == 1 for t in edges) else [*edges, {"to": END}]


def _add(graph: Graph, name: str, node: Graph) -> None:
    """Add a node of a motif. A workflow may have a node of this name already, and that node must stay as it is."""
    if name in graph["nodes"]:
        raise ConfigError(f"the workflow has a node '{name}' already; a motif cannot add another one.")
    graph["nodes"][name] = node


def _last(name: str, genes: Mapping[str, Any]) -> str:
    """The node that gives the final text of a node: with an ensemble, the one that picks."""
    return f"{name}_pick" if "ensemble" in genes else name


def _program(graph: Graph, name: str, _: Mapping[str, Any]) -> None:
    node, write, run = graph["nodes"][name], f"{name}_write", f"{name}_run"
    _redirect(graph, name, write)
    asked = "{task}\nReply with a Python program alone that prints the answer."
    _add(graph, write, {"role": node["role"], "prompt": asked, "next": run})
    _add(graph, run, {"tool": "python", "prompt": f"{{{write}}}", "next": name})
    node["prompt"] += f"\nA program that was written for this printed: {{{run}}}"


def _ensemble(graph: Graph, name: str, genes: Mapping[str, Any]) -> None:
    node, pick = graph["nodes"][name], _last(name, genes)
    prompt = f"{{task}}\nHere are several answers:\n{{{name}}}\nReply with the best one alone."
    _add(graph, pick, {"role": node["role"], "prompt": prompt, "next": _edges(graph, name)})
    node.update(samples=genes["ensemble"], merge="concat", next=pick)


def _test(graph: Graph, name: str, genes: Mapping[str, Any]) -> None:
    """Test the final text of the node, and let the node try again if it is wrong. Transitions that have a check of
    their own keep it."""
    last = _last(name, genes)
    edges = _ways(graph, last)
    right = [{"verify": genes["test"], **t} for t in edges]
    graph["nodes"][last]["next"] = [*right, {"to": name, "times": TRIES}, *edges]
    for retried in {name, last}:
        graph["nodes"][retried]["limit"] = max(graph["nodes"][retried].get("limit", 4), TRIES + 2)


def _review(graph: Graph, name: str, genes: Mapping[str, Any]) -> None:
    last, review, revise = _last(name, genes), f"{name}_review", f"{name}_revise"
    asked = f"{{task}}\nAnswer: {{{last}}}\nReview it: what is wrong, and how should it be changed?"
    again = f"{{task}}\nYour answer: {{{last}}}\nReview: {{{review}}}\nReply with the revised answer alone."
    edges = _ways(graph, last)
    # The motif `test` wrote the transitions with its check, then one that tries again, and then the transitions as they
    # were before. A revised text goes on by these last ones.
    as_before = edges[len(edges) // 2 + 1 :] if "test" in genes else edges
    after = [t for t in as_before if t["to"] != name]
    _add(graph, review, {"role": genes["review"], "prompt": asked, "next": revise})
    _add(graph, revise, {"role": graph["nodes"][name]["role"], "prompt": again, "next": after})
    graph["nodes"][last]["next"] = [t if t["to"] == name else {**t, "to": review} for t in edges]


def _drop(graph: Graph, name: str) -> None:
    after = next((t["to"] for t in reversed(_edges(graph, name)) if t["to"] != name), END)
    if after == END and graph["start"] == name:
        raise ConfigError(f"the workflow begins and ends with '{name}'; it cannot be dropped.")
    _redirect(graph, name, after)
    del graph["nodes"][name]
    for node in graph["nodes"].values():  # no prompt may use its text any more
        for place in (f"{{{name}}}", f"{{{name}.all}}"):
            node["prompt"] = node["prompt"].replace(place, "")


_BUILD: dict[str, Callable[[Graph, str, Mapping[str, Any]], None]] = {
    "program": _program,
    "ensemble": _ensemble,
    "test": _test,
    "review": _review,
}

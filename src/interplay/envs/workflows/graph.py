"""A workflow as data: nodes that ask a role or run a tool, and transitions between them.

    [workflow]
    start = "plan"
    [workflow.nodes.plan]
    role = "planner"
    prompt = "Plan how to solve this.\\n{task}"
    next = "solve"
    [workflow.nodes.solve]
    role = "solver"
    prompt = "{task}\\nPlan: {plan}"
    samples = 3
    merge = "vote"
    next = [{ to = "plan", contains = "unclear", times = 1 }, { to = "end" }]

The placeholders of a prompt are `{task}`, the names of nodes (the last text of that node), `{NODE.all}` (all texts of
that node) and `{last}` (the text of the previous node). Transitions are tried in order, and the first one whose
conditions all hold is taken. A transition to `end` ends the workflow, and the text of the last node is its answer. A
node can be visited at most `limit` times; after that the workflow ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Literal

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.errors import ConfigError, did_you_mean

END = "end"
TOOLS = ("calculator", "python")
_OWN = ("task", "last")


class TransitionSection(Section):
    """A transition to another node. It is taken if all given conditions hold for the text of the node."""

    to: str = Field(description="a node, or end")
    equals: str | None = Field(None, description="the node's text equals this, apart from white space and case")
    contains: str | None = Field(None, description="the node's text contains this, apart from case")
    matches: str | None = Field(None, description="this regular expression is found in the node's text")
    verify: str | None = Field(None, description="module:function of (task, text) says that the node's text is right")
    times: int | None = Field(None, ge=1, description="the node was visited at most this many times")

    @property
    def always(self) -> bool:
        return all(v is None for v in (self.equals, self.contains, self.matches, self.verify, self.times))

    def __str__(self) -> str:
        said = [f"{k} {v}" for k, v in self.model_dump().items() if k != "to" and v is not None]
        return ", ".join(said)


class NodeSection(Section):
    """A node either asks a role or runs a tool on the prompt."""

    role: str = Field("", description="the role that is asked; a node has either a role or a tool")
    tool: Literal["", "calculator", "python"] = Field("", description="the tool that is run on the prompt's text")
    prompt: str = Field(description="what is asked, with placeholders")
    system: str = Field("", description="a system prompt before the prompt")
    samples: int = Field(1, ge=1, le=64, description="number of replies that are sampled for one visit")
    merge: Literal["vote", "best", "concat"] = Field(
        "vote", description="several replies become one: the most frequent, the best by `verify`, or all of them"
    )
    verify: str | None = Field(
        None, description="for merge = best: module:function of (task, text) that returns a number"
    )
    talk: bool = Field(False, description="the role sees the conversation of its earlier visits to this node")
    max_tokens: int | None = Field(None, ge=1, description="token limit of one reply, below sampling.max_tokens")
    limit: int = Field(4, ge=1, description="number of visits after which the workflow ends")
    next: str | list[TransitionSection] = Field(END, description="the next node, or a list of transitions")

    @property
    def transitions(self) -> list[TransitionSection]:
        return [TransitionSection(to=self.next)] if isinstance(self.next, str) else self.next


class WorkflowSection(Section):
    """A state machine: its nodes by name, and where it starts."""

    nodes: dict[str, NodeSection] = Field(description="the nodes by name; a node's name is the phase of its turns")
    start: str = Field("", description="the first node; default: the first one in the recipe")

    @property
    def first(self) -> str:
        return self.start or next(iter(self.nodes))

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n.role for n in self.nodes.values() if n.role))

    @model_validator(mode="after")
    def _is_whole(self) -> WorkflowSection:
        if not self.nodes:
            raise ConfigError("workflow.nodes is empty; expected at least one [workflow.nodes.NAME].")
        if self.first not in self.nodes:
            raise ConfigError(f"workflow.start is '{self.start}'; {did_you_mean(self.start, self.nodes)}")
        for name, node in self.nodes.items():
            self._check_node(name, node)
        if not self.roles:
            raise ConfigError("no node of the workflow asks a role; expected at least one with role = NAME.")
        if unreached := sorted(self.nodes.keys() - self._reached()):
            raise ConfigError(f"workflow.nodes.{unreached[0]} is never reached; expected a transition to it.")
        return self

    def _check_node(self, name: str, node: NodeSection) -> None:
        key = f"workflow.nodes.{name}"
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or name in (END, *_OWN):
            raise ConfigError(f"{key} has a name that cannot be used; expected letters, digits and _, not {END}.")
        if bool(node.role) == bool(node.tool):
            raise ConfigError(f"{key} has {'both' if node.role else 'no'} role and tool; expected one of the two.")
        if node.tool and node.samples > 1:
            raise ConfigError(
                f"{key}.samples is {node.samples}, but a tool gives the same result every time; expected 1."
            )
        if node.merge == "best" and not node.verify:
            raise ConfigError(f"{key}.merge is 'best'; expected {key}.verify, a function that says which is best.")
        for transition in node.transitions:
            if transition.to not in (END, *self.nodes):
                raise ConfigError(f"{key}.next names '{transition.to}'; {did_you_mean(transition.to, [*self.nodes])}")
            if transition.matches is not None:
                try:
                    re.compile(transition.matches)
                except (re.error, OverflowError, RecursionError) as error:
                    raise ConfigError(f"{key}.next has the pattern '{transition.matches}': {error}.") from None
        for place in placeholders(node.prompt, key):
            if place.removesuffix(".all") not in (*_OWN, *self.nodes):
                known = did_you_mean(place, [*_OWN, *self.nodes])
                raise ConfigError(f"{key}.prompt has the placeholder {{{place}}}; {known}")

    def _reached(self) -> set[str]:
        found, left = set[str](), [self.first]
        while left:
            name = left.pop()
            if name not in found and name != END:
                found.add(name)
                left += [t.to for t in self.nodes[name].transitions]
        return found


def placeholders(prompt: str, key: str = "prompt") -> list[str]:
    """Return the names in braces. Other braces must be written twice, as in Python's `format`."""
    try:
        return [name for _, name, _, _ in Formatter().parse(prompt) if name is not None]
    except ValueError as error:
        raise ConfigError(
            f"{key} cannot be read: {error}; write every brace that does not belong to a placeholder twice."
        ) from None


def filled(prompt: str, values: Mapping[str, str]) -> str:
    """Return a prompt with its placeholders filled in. The text of a node that has not been visited is empty."""
    out = []
    for words, name, _, _ in Formatter().parse(prompt):
        out.append(words + ("" if name is None else values.get(name, "")))
    return "".join(out)


def mermaid(workflow: WorkflowSection) -> str:
    """Return the state machine as a Mermaid diagram."""
    lines = ["flowchart TD", f"    start([start]) --> {workflow.first}"]
    for name, node in workflow.nodes.items():
        who = node.role or f"tool {node.tool}"
        many = f" ×{node.samples} {node.merge}" if node.samples > 1 else ""
        lines.append(f'    {name}["{name}<br/>{who}{many}"]')
    for name, node in workflow.nodes.items():
        for transition in node.transitions:
            to = "done" if transition.to == END else transition.to
            why = str(transition).replace('"', "'")
            lines.append(f'    {name} -->|"{why}"| {to}' if why else f"    {name} --> {to}")
    return "\n".join([*lines, "    done([end])"])

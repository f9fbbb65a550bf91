"""Runs the workflow of a recipe on the tasks of another environment.

`env.name = "workflow:sums"` plays the environment `sums`, and the whole workflow takes its only role: the observation
of that role is `{task}`, and the answer of the workflow is its move. The options of the inner environment are in
`[env.inner]`. The roles of the workflow are ordinary seats, the name of a node is the phase of its turns, and the team
gets the rewards that the inner environment gives to its role.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env, make, outcome_of, register, sample_task
from interplay.envs.programs.coroutine import Ask, CoroutineRun, How
from interplay.envs.programs.counts import CRASHED
from interplay.envs.programs.program import Asking, ProgramTurn
from interplay.envs.programs.run import ProgramRun
from interplay.envs.tasks.problems import code_in
from interplay.envs.tools import named
from interplay.envs.workflows.graph import END, NodeSection, TransitionSection, WorkflowSection, filled
from interplay.errors import ConfigError
from interplay.registry import imported
from interplay.rewards.verify import final
from interplay.types import Level, Message, Reward, Rewards, Spoken, Task

INNER = "task"  # the key in a task that holds the task of the inner environment
SECONDS = 600.0


class WorkflowOptions(Section):
    """Options of a workflow that plays another environment."""

    workflow: WorkflowSection = Field(description="the state machine; in a recipe, [workflow]")
    inner: dict[str, Any] = Field({}, description="the options of the environment that gives the tasks")


@dataclass
class Machine:
    """One pass through a workflow. `said` holds the texts of every node, the newest last."""

    workflow: WorkflowSection
    task: Mapping[str, Any]
    text: str
    ask: Ask
    said: dict[str, list[str]] = field(default_factory=dict)
    last: str = ""
    talks: dict[str, list[Message]] = field(default_factory=dict)

    async def answer(self) -> str:
        name = self.workflow.first
        while name != END:
            node = self.workflow.nodes[name]
            if len(self.said.get(name, ())) >= node.limit:
                break
            self.last = await self._visit(name, node)
            self.said.setdefault(name, []).append(self.last)
            name = next((t.to for t in node.transitions if self._holds(t, name)), END)
        return self.last

    async def _visit(self, name: str, node: NodeSection) -> str:
        values = {"task": self.text, "last": self.last}
        for other, texts in self.said.items():
            values |= {other: texts[-1], f"{other}.all": "\n".join(texts)}
        prompt = filled(node.prompt, values)
        if node.tool:
            (tool,) = named([node.tool])
            (parameter,) = tool.parameters
            prompt = code_in(prompt) if node.tool == "python" else prompt
            return await asyncio.to_thread(tool.run, **{parameter.name: prompt})
        begin = [Message("system", node.system)] if node.system else []
        before = self.talks.get(name, begin) if node.talk else begin
        messages = [*before, Message("user", prompt)]
        replies = await asyncio.gather(*(self._ask(name, node, messages) for _ in range(node.samples)))
        text = self._merged(node, [str(r) for r in replies])
        if node.talk:
            self.talks[name] = [*messages, Message("assistant", text)]
        return text

    def _ask(self, name: str, node: NodeSection, messages: list[Message]) -> Awaitable[Spoken]:
        return self.ask(node.role, messages, max_tokens=node.max_tokens, phase=name)

    def _merged(self, node: NodeSection, texts: list[str]) -> str:
        if len(texts) == 1:
            return texts[0]
        if node.merge == "concat":
            return "\n".join(f"({n}) {text}" for n, text in enumerate(texts, 1))
        if node.merge == "best":
            score = imported("verify", node.verify or "")
            return max(texts, key=lambda text: float(score(self.task, text)))
        votes = Counter(map(_answer, texts))
        return max(texts, key=lambda text: votes[_answer(text)])  # in a tie, the first one

    def _holds(self, transition: TransitionSection, name: str) -> bool:
        text = self.last
        if transition.times is not None and len(self.said[name]) > transition.times:
            return False
        if transition.equals is not None and _normal(text) != _normal(transition.equals):
            return False
        if transition.contains is not None and transition.contains.lower() not in text.lower():
            return False
        if transition.matches is not None and not re.search(transition.matches, text):
            return False
        if transition.verify is not None:
            return bool(imported("verify", transition.verify)(self.task, text))
        return True


def _normal(text: str) -> str:
    return " ".join(text.split()).lower()


def _answer(text: str) -> str:
    """Return what a vote counts: the answer that a reply marks as final, so that the words before it do not matter, or
    the whole text if the reply has no such mark."""
    return final(text) or _normal(text)


async def play(inner: Env, workflow: WorkflowSection, data: Mapping[str, Any], ask: Ask) -> list[Reward]:
    """Play the inner environment to its end, with the workflow in its only role. Return the rewards."""
    rewards: list[Reward] = []
    history: list[str] = []
    while seen := inner.observe():
        ((role, o),) = seen.items()
        told = [m.content for m in o.messages]
        history = told if o.fresh else [*history, *told]
        answer = await Machine(workflow, data, "\n".join(history), ask).answer()
        rewards += await asyncio.to_thread(inner.step, {role: answer})
        history.append(answer)
    return [*rewards, *(await asyncio.to_thread(outcome_of, inner))]


@register("workflow:")
class Workflow(Asking):
    Options: ClassVar[type[Section]] = WorkflowOptions

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        known = {key: task.data[key] for key in ("workflow", "inner")}
        self.options = WorkflowOptions.model_validate(known)
        self.roles = self.options.workflow.roles
        inner = task.data[INNER]
        self.inner = Task(inner["id"], inner["env"], inner["seed"], inner["data"])

    @property
    def reward_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*make(self.inner).reward_names, CRASHED)

    @classmethod
    def make_task(cls, name: str, split: str, index: int, seed: int, options: Mapping[str, Any]) -> Task:
        task = super().make_task(name, split, index, seed, options)
        other = name.partition(":")[2]
        inner = sample_task(other, options["inner"], split, index, seed)
        if len(make(inner).roles) != 1:
            raise ConfigError(
                f"env.name is '{name}', and {other} has the roles {', '.join(make(inner).roles)}; expected one role, "
                "which the workflow takes (set it in [env.inner], such as team = 'single')."
            )
        kept = {"id": inner.id, "env": inner.env, "seed": inner.seed, "data": dict(inner.data)}
        return Task(task.id, name, task.seed, {**options, INNER: kept})

    def start(self) -> ProgramRun:
        workflow, inner = self.options.workflow, self.inner

        async def team(task: Mapping[str, Any], ask: Ask) -> list[Reward]:
            return await play(make(inner), workflow, task, ask)

        return CoroutineRun(team, self.inner.data, How(SECONDS))

    def rewarded(self, result: list[Reward], calls: list[ProgramTurn]) -> Rewards:
        """The team gets the rewards of the inner role."""
        return Rewards(tuple(replace(r, level=Level.TEAM, role=None, turn=None) for r in result))


def workflow_of(options: Mapping[str, Any]) -> WorkflowSection | None:
    """Return the workflow of a recipe's environment if it has one. Used to draw it."""
    found = options.get("workflow")
    return None if found is None else WorkflowSection.model_validate(found)

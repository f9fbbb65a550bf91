"""Workflows that evolve: new candidates are compared with the best workflow so far, in rounds of successive halving.

A round plays the champion, the runner-up and new candidates on the same tasks of the validation split, with the current
policies. It has several looks: after each look, the better half continues with twice as many tasks. The value of a
workflow is its mean reward minus the price of its tokens. Champion and runner-up are played again in every round, on
other tasks, because the skills of the policies change. Their earlier results count a little less each time (`fade`).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from interplay.algorithms import Independent
from interplay.config.evolve import EvolveSection
from interplay.envs.workflows.graph import WorkflowSection
from interplay.envs.workflows.motifs import Design, Graph, checked, moves, plain, turned
from interplay.errors import CheckpointError, ConfigError
from interplay.registry import imported
from interplay.seats import RunPlan
from interplay.types import Credit, Episode, Task, seed_of

DOUBLE = 0.3  # the share of candidates that differ by two motifs
FAILED_ROUNDS = 2  # a workflow all of whose episodes failed in this many rounds in a row is not played again
SURE = 2.0  # a workflow this many standard errors behind the champion is not tried again
VISITS = 256  # of a workflow that a designer proposes: visits of all nodes, each counted once for every sample


@dataclass
class Worth:
    """The results of a workflow: the (faded) number of episodes, their sum and their sum of squares."""

    count: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: Iterable[float]) -> None:
        for value in values:
            self.count, self.total, self.squares = self.count + 1, self.total + value, self.squares + value * value

    def fade(self, by: float) -> None:
        self.count, self.total, self.squares = self.count * by, self.total * by, self.squares * by

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean. The variance counts as at least 1 / `count`, so that a few equal results do
        not look certain."""
        if self.count < 2:
            return math.inf
        spread = max(0.0, self.squares / self.count - self.mean**2)
        return math.sqrt(max(spread, 1 / self.count) / self.count)


class Fault(Enum):
    """What made all episodes of a workflow fail."""

    WORKFLOW = "workflow"
    SYSTEM = "system"


@dataclass
class Failure:
    """A workflow all of whose episodes failed when it was last played, and in how many rounds in a row they did."""

    fault: Fault
    rounds: int


# Plays every workflow on the tasks with these numbers. For each workflow, it returns what each episode earned (the
# reward less the price of the tokens) or, if every episode failed, whose fault it was.
PlayGraphs = Callable[[Sequence[Graph], Sequence[int]], Awaitable[Sequence[Sequence[float] | Fault]]]


@dataclass
class Evolution:
    """The search for better workflows. `roles` are the roles that the nodes of a workflow may ask."""

    section: EvolveSection
    start: Graph
    roles: Sequence[str]
    seed: int
    worth: dict[str, Worth] = field(default_factory=dict)  # by the key of a design
    failures: dict[str, Failure] = field(default_factory=dict)  # by the key of a design
    rounds: int = 0
    played: int = 0  # validation episodes so far
    pending: list[dict[str, Any]] = field(default_factory=list)  # a designer's episodes that wait to be learned from

    def __post_init__(self) -> None:
        self.start = plain(checked(self.start))
        self.champion = Design(self.start)
        self.runner_up: Design | None = None

    # -- one round ------------------------------------------------------------------------------------------------

    async def round(self, play: PlayGraphs, designs: Sequence[Graph] = ()) -> dict[str, float]:
        """Play a round; `designs` are a designer's proposals, which take part beside those of the motifs."""
        rng = random.Random(seed_of("evolve", self.seed, self.rounds))
        left = self._field(rng, designs)
        for worth in self.worth.values():
            worth.fade(self.section.fade)
        before, first = self.champion.key, self._first_task()
        size, begun = self.section.tasks, 0
        for look in range(self.section.looks):
            numbers = [first + n for n in range(begun, begun + size)]
            found = await play([one.graph for one in left], numbers)
            left = [one for one, result in zip(left, found, strict=True) if self._counted(one, result, look)]
            begun, size = begun + size, size * 2
            if look < self.section.looks - 1:
                left = self._better_half(left)
        self._crown(left)
        self.rounds += 1
        return {
            "evolve/worth": self.mean(self.champion),
            "evolve/nodes": float(len(self.champion.graph["nodes"])),
            "evolve/changed": float(self.champion.key != before),
            "evolve/played": float(self.played),
        }

    def _counted(self, design: Design, result: Sequence[float] | Fault, look: int) -> bool:
        """Count the result of a workflow. Return whether it stays in the round: one whose episodes all failed does not.
        If that happens in a later look, the results of the earlier looks are kept."""
        if not isinstance(result, Fault):
            self.worth.setdefault(design.key, Worth()).add(result)
            self.played += len(result)
            self.failures.pop(design.key, None)
            return True
        if look == 0:
            before = self.failures.get(design.key)
            self.failures[design.key] = Failure(result, 1 if before is None else before.rounds + 1)
        return False

    def _first_task(self) -> int:
        """The number of the first task of this round. Each round has its own tasks."""
        return self.rounds * self.section.tasks * (2**self.section.looks - 1)

    def _field(self, rng: random.Random, designs: Sequence[Graph]) -> list[Design]:
        """The workflows of a round: the best so far, those of a designer, and variations of the champion that are not
        known to be worse."""
        proposed = [d for d in map(Design, designs) if not self._failed(d)]
        out = {d.key: d for d in (self.champion, self.runner_up, *proposed) if d is not None}
        kept = len(out)
        for near in (True, False):  # first candidates that differ by one motif (some by two), then all by two
            options = moves(self.champion, self.section, self.roles)
            rng.shuffle(options)
            for option in options:
                if len(out) >= kept + self.section.candidates:
                    return list(out.values())
                made = turned(self.champion, *option)
                if made is not None and (not near or rng.random() < DOUBLE):
                    made = turned(made, *rng.choice(moves(made, self.section, self.roles))) or made
                if made is not None and self._open(made):
                    out.setdefault(made.key, made)
        return list(out.values())

    def _open(self, design: Design) -> bool:
        """Whether the workflow may still be better than the champion."""
        if len(design.graph["nodes"]) > self.section.nodes or self._failed(design):
            return False
        mine, best = self.worth.get(design.key), self.worth.get(self.champion.key)
        return mine is None or best is None or mine.mean + SURE * mine.error > best.mean

    def _failed(self, design: Design) -> bool:
        found = self.failures.get(design.key)
        return found is not None and found.rounds >= FAILED_ROUNDS

    def mean(self, design: Design) -> float:
        return self.worth[design.key].mean if design.key in self.worth else 0.0

    def _ranked(self, designs: Iterable[Design]) -> list[Design]:
        """The workflows, best first; of equally good ones, the smaller first."""
        return sorted(designs, key=lambda d: (-self.mean(d), len(d.key), d.key))

    def _better_half(self, designs: Sequence[Design]) -> list[Design]:
        """The better half. The champion always stays, so that one bad result does not remove it."""
        stay = self._ranked(designs)[: max(2, (len(designs) + 1) // 2)]
        return stay if any(d.key == self.champion.key for d in stay) else [*stay[:-1], self.champion]

    def _crown(self, designs: Sequence[Design]) -> None:
        """The new champion: the best of the workflows that were played in the last look."""
        self.champion, *others = self._ranked(designs)
        self.runner_up = others[0] if others else None

    # -- choosing the tasks of a step -----------------------------------------------------------------------------

    def choose(self, step: int, count: int, make: Callable[[int, Mapping[str, Any]], Task]) -> list[Task]:
        """The tasks of a training step, with the champion as the workflow."""
        return [make(step * count + i, {"workflow": self.champion.graph}) for i in range(count)]

    def record(
        self, step: int, episodes: Sequence[Episode], learners: Container[str], credit: Credit
    ) -> dict[str, float]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {
            "kind": "evolve",
            "worth": {key: [w.count, w.total, w.squares] for key, w in self.worth.items()},
            "failures": {key: [f.fault.value, f.rounds] for key, f in self.failures.items()},
            "champion": self.champion.to_json(),
            "runner_up": None if self.runner_up is None else self.runner_up.to_json(),
            "rounds": self.rounds,
            "played": self.played,
            "pending": self.pending,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state.get("kind") != "evolve":
            raise CheckpointError(
                f"the checkpoint has the curriculum '{state.get('kind')}', but this recipe evolves workflows; start a "
                "new run."
            )
        self.worth = {key: Worth(*values) for key, values in state["worth"].items()}
        found = state.get("failures", {})
        self.failures = {key: Failure(Fault(fault), rounds) for key, (fault, rounds) in found.items()}
        self.champion = Design(**state["champion"])
        self.runner_up = None if state["runner_up"] is None else Design(**state["runner_up"])
        self.rounds, self.played, self.pending = state["rounds"], state["played"], list(state["pending"])


def make_evolution(plan: RunPlan) -> Evolution | None:
    """The search that a recipe asks for. Raises a ConfigError if it cannot be made."""
    section = plan.recipe.evolve
    if section is None:
        return None
    start = plan.recipe.env.options.get("workflow")
    if start is None:
        name = plan.recipe.env.name
        raise ConfigError(f"[evolve] needs a workflow, but env.name is '{name}'; expected workflow:NAME.")
    if plan.recipe.curriculum is not None:
        raise ConfigError("[evolve] and [curriculum] both choose the tasks; expected only one of them.")
    if section.designer and not isinstance(plan.algorithm.plan, Independent):
        raise ConfigError(
            f"evolve.designer is '{section.designer}', whose proposals form one group of replies, but "
            f"{plan.recipe.algorithm.name} plays trees; expected an algorithm with independent episodes, such as grpo."
        )
    if section.verify:
        imported("evolve.verify", section.verify)  # a name that cannot be imported would stop the run in a late round
    return Evolution(section, dict(start), plan.roles, plan.recipe.seed)


def evolved(plan: RunPlan, checkpoint: Mapping[str, Any]) -> RunPlan:
    """The plan whose tasks have the best workflow of a run. `checkpoint` is the content of its trainer.json."""
    state = checkpoint["curriculum"]
    if plan.recipe.evolve is None or state is None:
        return plan
    return replace(plan, workflow=Design(**state["champion"]).graph)


# -- the designer -----------------------------------------------------------------------------------------------------

BRIEF = """You design workflows: nodes that ask a role (or run the tool python or calculator) and lead to other nodes.
This is the best one so far, as JSON; it is worth {worth:.3f}:
{graph}
Roles: {roles}. Placeholders in prompts: {{task}}, {{last}}, and the names of nodes. At most {nodes} nodes, and at most
{visits} visits of all nodes together (limit times samples). No new functions (verify) or patterns (matches).
Reply with a better workflow, as JSON alone."""


def brief(evolution: Evolution) -> str:
    """The prompt of a designer."""
    return BRIEF.format(
        worth=evolution.mean(evolution.champion),
        graph=json.dumps(evolution.champion.graph),
        roles=", ".join(evolution.roles),
        nodes=evolution.section.nodes,
        visits=VISITS,
    )


def design(text: str, evolution: Evolution) -> Graph | None:
    """The workflow in a designer's reply; None if there is no valid one. A workflow is data: the only code that it can
    run is what its `python` nodes send to the sandbox. It can name only those functions and regular expressions that
    the user has named, because a regular expression can take for ever, and it cannot visit its nodes without end."""
    begin, end = text.find("{"), text.rfind("}")
    try:
        found = checked(json.loads(text[begin : end + 1]))
        json.dumps(plain(found), ensure_ascii=False).encode()  # an escape can make text that is not valid Unicode
    except (ValueError, ConfigError, RecursionError):
        return None
    if not set(found.roles) <= set(evolution.roles) or len(found.nodes) > evolution.section.nodes:
        return None
    if sum(node.limit * node.samples for node in found.nodes.values()) > VISITS:
        return None
    known = _code(checked(evolution.start))
    if evolution.section.verify:
        known.add(("verify", evolution.section.verify))
    return plain(found) if _code(found) <= known else None


def _code(workflow: WorkflowSection) -> set[tuple[str, str]]:
    """The functions and the regular expressions of a workflow."""
    nodes = workflow.nodes.values()
    edges = [transition for node in nodes for transition in node.transitions]
    functions = [node.verify for node in nodes] + [edge.verify for edge in edges]
    named = [("verify", name) for name in functions] + [("matches", edge.matches) for edge in edges]
    return {(kind, name) for kind, name in named if name is not None}

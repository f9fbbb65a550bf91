"""Rounds of evolution between training steps: the current policies play workflows, and nothing is trained on this play.

All proposals of a designer in one round form a group of episodes. The reward of a proposal is its value minus the value
that the champion had before. A proposal whose episodes all fail is penalised if the workflow is at fault, and is left
out if the system is. The designer learns from its proposals in the next training step.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interplay.algorithms import Independent
from interplay.algorithms.credit import mix
from interplay.envs.workflows.designing import DESIGNER, Designing
from interplay.envs.workflows.motifs import Design, Graph
from interplay.errors import EnvError, GuardError, LimitError, ModelError
from interplay.rollout import episode_json, records
from interplay.rollout.evolve import Evolution, Fault, brief, design
from interplay.rollout.media import MediaFolder
from interplay.rollout.runner import Runner, Seated
from interplay.rollout.team import Speech, Team, speech_of
from interplay.seats import RunPlan
from interplay.types import Episode, Level, Policy, Reward, Rewards, Task, seed_of

ENV = f"{Designing.__module__}:{Designing.__name__}"
WORST = -0.1  # the value of a proposal that is no valid workflow, or whose episodes all fail
# A workflow is at fault for these errors, unless episodes of the champion have the same error: it crashes, it takes too
# long, or its messages do not fit the chat template of a model. Any other error is one of the system.
BLAMED = (EnvError, LimitError, ModelError)


class Evolver:
    """`team` plays, and `evolution` decides. The designer's episodes wait in `evolution.pending` for the next step."""

    def __init__(self, plan: RunPlan, team: Team, evolution: Evolution, folder: Path) -> None:
        self.plan, self.team, self.evolution = plan, team, evolution
        self.store = MediaFolder(folder / records.MEDIA)

    def due(self, step: int) -> bool:
        return step % self.evolution.section.every == 0

    def pending(self) -> list[Episode]:
        """Return the designer's episodes that were not trained on yet, and forget them."""
        found = [episode_json.from_json(data, self.store)[0] for data in self.evolution.pending]
        self.evolution.pending = []
        return found

    async def round(self) -> dict[str, float]:
        """Play a round. If it is cancelled, nothing has changed."""
        before = copy.deepcopy(self.evolution.state_dict())
        try:
            return await self._round()
        except asyncio.CancelledError:
            self.evolution.load_state_dict(before)
            raise

    async def _round(self) -> dict[str, float]:
        evolution = self.evolution
        before = evolution.mean(evolution.champion)
        proposals = await self._proposals() if evolution.section.designer else []
        graphs = [graph for _, graph in proposals if graph is not None]
        metrics = await evolution.round(self._play, graphs)
        if proposals:
            metrics["evolve/designs"] = len(graphs) / len(proposals)
        rewarded = [(episode, self._reward(graph, before)) for episode, graph in proposals]
        evolution.pending = []
        for episode, reward in rewarded:
            if reward is not None:
                episode.turns[0].rewards = episode.rewards = Rewards((reward,))
                evolution.pending.append(episode_json.to_json(episode))
        return metrics

    def _reward(self, graph: Graph | None, before: float) -> Reward | None:
        """The reward of a designer for a proposal; None if the system failed. `before` is the value of the champion.
        The value of a text that is no workflow, and of a workflow that is at fault for the failure of all its episodes,
        counts as `WORST`. Their reward is never above that, even if the champion has a lower value."""
        worst = WORST - max(before, 0.0)
        if graph is None:
            return Reward("illegal", Level.PROCESS, DESIGNER, worst)
        failure = self.evolution.failures.get(Design(graph).key)
        if failure is None:
            return Reward("design", Level.AGENT, DESIGNER, self.evolution.mean(Design(graph)) - before)
        return None if failure.fault is Fault.SYSTEM else Reward("failed", Level.AGENT, DESIGNER, worst)

    async def _play(self, graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float] | Fault]:
        """Reward less the price of the tokens, of every episode that did not fail. All workflows are played at once. A
        slow one can hold up the others, so if an episode of the champion takes too long, each workflow is played again
        alone. If every episode of the champion failed, the fault is not in a candidate, and the run stops."""
        champion = list(graphs).index(self.evolution.champion.graph)
        each = await self._episodes(graphs, numbers)
        if len(graphs) > 1 and any(_kind(e) == LimitError.__name__ for e in each[champion]):
            each = [(await self._episodes([graph], numbers))[0] for graph in graphs]
        best = each[champion]
        if all(e.error is not None for e in best):
            raise GuardError(
                f"every episode of the best workflow so far failed; the error of the first one: {best[0].error}"
            )
        return [[self._worth(e) for e in mine if e.error is None] or _fault(mine, best) for mine in each]

    async def _episodes(self, graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[Episode]]:
        """Play these workflows at once. Return the episodes of each."""
        recipe = self.plan.recipe
        runner = Runner(recipe.seed, recipe.rollout, Independent(1), recipe.reward)
        tasks = [self.plan.task(n, "validation", {"workflow": graph}) for graph in graphs for n in numbers]
        how = Speech(recipe.eval.temperature, recipe.sampling.max_tokens)
        played = await runner.run(tasks, self.team.seating(lambda _: self.plan.seats, how))
        return [played[first : first + len(numbers)] for first in range(0, len(played), len(numbers))]

    def _worth(self, episode: Episode) -> float:
        role = self.plan.roles[0]
        tokens = sum(t.sampled for t in episode.turns)
        return mix(episode.rewards, role, self.plan.recipe.reward) - self.evolution.section.price * tokens / 1000

    async def _proposals(self) -> list[tuple[Episode, Graph | None]]:
        """Ask the designer the same question several times and return its proposals."""
        recipe, section = self.plan.recipe, self.evolution.section
        runner = Runner(recipe.seed, recipe.rollout, Independent(section.designs), recipe.reward)
        name = f"design-{self.evolution.rounds}"
        data: dict[str, Any] = {"brief": brief(self.evolution)}
        task = Task(name, ENV, seed_of("design", recipe.seed, self.evolution.rounds), data)
        who = Policy(section.designer)

        def seated(_: Task) -> Seated:
            return Seated({DESIGNER: who}, {DESIGNER: self.team.agent(DESIGNER, who, speech_of(recipe))})

        played = [e for e in await runner.run([task], seated) if e.error is None]
        return [(replace(e), design(e.turns[0].text, self.evolution)) for e in played]


def _fault(failed: Sequence[Episode], champion: Sequence[Episode]) -> Fault:
    """Who made all these episodes of a workflow fail, on the same tasks as those of the champion."""
    blamed = {error.__name__ for error in BLAMED} - {_kind(e) for e in champion}
    return Fault.WORKFLOW if all(_kind(e) in blamed for e in failed) else Fault.SYSTEM


def _kind(episode: Episode) -> str:
    """The class of an episode's error; empty if it has none."""
    return (episode.error or "").partition(":")[0]

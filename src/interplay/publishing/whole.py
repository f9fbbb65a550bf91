"""The test of a whole team: the seats of a run play tasks of the test split before training, and again after it.

Both tests use the same tasks, prompts and sampling; with [evolve], the second one plays the workflow that evolved. The
first result is written to the run folder at once, so that a run that is stopped and continued keeps it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from interplay.config import TEAM, Recipe
from interplay.evaluation import strategies
from interplay.evaluation.benchmark import Lineup, lineups
from interplay.evaluation.field import Field
from interplay.evaluation.measures import tokens
from interplay.evaluation.measures import verdict as verdict_of
from interplay.rollout.resolve import resolve
from interplay.types import Episode, Occupant, Policy, Role

if TYPE_CHECKING:
    from interplay.training.trainer import Trainer

STARTED = "start.json"


def names_of(recipe: Recipe, resets: bool) -> set[str]:
    """The names of everything that the test of a team with this recipe measures."""
    played = {"success", "tokens", "illegal", "failed"}
    if recipe.eval.exploitability:
        played |= {"exploitability", "stray"}
    roles = [role for role, who in resolve(recipe).seats.items() if isinstance(who, Policy)] if resets else []
    return {*played, "start", *(f"start/{name}" for name in played), *(f"reset/{role}" for role in roles)}


class WholeTest:
    """`resets`: also play, for each role, with the initial weights in that role and the trained ones in the others."""

    def __init__(self, trainer: Trainer, resets: bool) -> None:
        self.trainer, self.resets = trainer, resets
        self.file = trainer.folder / STARTED

    def begin(self) -> None:
        """Test the team before reinforcement learning."""
        if self.trainer.step_index == 0 and not self.file.is_file():
            self.file.write_text(json.dumps(self._play(self.trainer.plan.seats), indent=1) + "\n")

    def end(self) -> dict[str, Any]:
        """Test the trained team. `start` is the result before training, and `reset/ROLE` the result with the initial
        weights in that role."""
        trainer = self.trainer
        found, start = self._play(trainer.plan.seats), json.loads(self.file.read_text())
        means = {**found["mean"], **{f"start/{key}": value for key, value in start["mean"].items()}}
        means |= {"start": start["mean"]["success"]}
        for role, who in trainer.plan.seats.items() if self.resets else ():
            if isinstance(who, Policy):
                bare = trainer.team.bare(who.name, trainer.plan.recipe)
                means[f"reset/{role}"] = self._play({**trainer.plan.seats, role: bare})["mean"]["success"]
        return {"mean": means, "lineups": [{"seats": [], "tasks": found["tasks"], "start": start["tasks"]}]}

    def _play(self, seats: Mapping[Role, Occupant]) -> dict[str, dict[str, float]]:
        """Play with `eval.opponents`. Success is that of a team, or the score in games (a win is 1, a draw ½)."""
        return asyncio.run(self._played(seats))

    async def _played(self, seats: Mapping[Role, Occupant]) -> dict[str, dict[str, float]]:
        trainer, recipe = self.trainer, self.trainer.plan.recipe
        evolution = trainer.evolution  # if the workflow evolves, the best so far is played
        workflow = None if evolution is None else evolution.champion.graph
        plan = replace(trainer.plan, seats=dict(seats), workflow=workflow)
        field = Field(plan, trainer.team, recipe.eval.games, "test", recipe.eval.temperature)
        mine = {role: seats[role] for role in plan.learning}
        found: list[tuple[Lineup, list[Episode]]] = []
        for lineup in lineups(plan, recipe.eval.opponents, mine):
            found.append((lineup, await field.play(lineup.seats)))
        good = [(lineup, e) for lineup, episodes in found for e in episodes if e.error is None]
        done: dict[str, float] = {}
        for lineup, e in good:
            verdict = verdict_of(recipe, e, lineup.role)
            done[f"{lineup.opponent}/{lineup.role}/{e.task.id}"] = verdict.won + verdict.drawn / 2
        turns = [t for lineup, e in good for t in e.line(None if lineup.role == TEAM else lineup.role)]
        mean = {
            "success": sum(done.values()) / len(done),
            "tokens": sum(tokens(e, lineup.role) for lineup, e in good) / len(good),
            "illegal": sum(t.illegal for t in turns) / max(1, len(turns)),
            "failed": float(sum(len(episodes) for _, episodes in found) - len(good)),
        }
        if recipe.eval.exploitability:
            strategy = await strategies.measure(plan, trainer.team)
            mean |= {"exploitability": strategy.found.exploitability, "stray": strategy.stray}
        return {"mean": mean, "tasks": done}

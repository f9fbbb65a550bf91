"""The plan of a run, made from its recipe: the roles, who plays them, who learns when, and the tasks. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from interplay import envs
from interplay.algorithms import Algorithm
from interplay.config import MatchupSection, Recipe, TrainSection
from interplay.seats.seating import Seats
from interplay.types import Occupant, One, Role, Snapshot, Task, seed_of
from interplay.types.occupant import everyone, learns, parse_one

_OWN = (
    "lr", "optimizer", "schedule", "warmup_steps", "final_lr", "weight_decay", "beta1", "beta2", "grad_clip",
)  # fmt: skip


@dataclass(frozen=True)
class Matchup:
    """Other occupants for a share of the training episodes: either `seats` for some roles, or `one` in a role that is
    drawn for each task and `others` in all other roles."""

    section: MatchupSection
    seats: Mapping[Role, Occupant]
    one: One | None = None
    others: One | None = None

    @property
    def named(self) -> list[One]:
        """Everybody who has a seat in this matchup."""
        if self.one is None or self.others is None:
            return [who for occupant in self.seats.values() for who in everyone(occupant)]
        return [self.one, self.others]


@dataclass(frozen=True)
class RunPlan:
    recipe: Recipe
    roles: tuple[Role, ...]
    seats: dict[Role, Occupant]
    matchups: tuple[Matchup, ...]
    algorithm: Algorithm
    workflow: Mapping[str, Any] | None = None  # the one that evolved in the run, instead of the recipe's

    @staticmethod
    def make(recipe: Recipe, roles: tuple[Role, ...], algorithm: Algorithm) -> RunPlan:
        """Parse the occupants in [seats] and [[matchups]] and make the plan."""
        parser = Seats(recipe.policies)
        matchups = []
        for i, section in enumerate(recipe.matchups):
            seats = parser.some(section.seats, roles, f"matchups.{i}.seats")
            one, others = (None if name is None else parser.one(name) for name in (section.one, section.others))
            matchups.append(Matchup(section, seats, one, others))
        return RunPlan(recipe, roles, parser.map(recipe.seats, roles), tuple(matchups), algorithm)

    def occupant(self, text: str) -> Occupant:
        """The occupant that a text names; it may name any policy of the recipe."""
        return Seats(self.recipe.policies).occupant(text)

    def seats_for(self, task: Task, step: int = 0) -> dict[Role, Occupant]:
        """The occupants in the training episodes of a task: those of [seats], or of a matchup drawn by its share."""
        return self.matched(task, step)[1]

    def matched(self, task: Task, step: int) -> tuple[Matchup | None, dict[Role, Occupant]]:
        """The matchup of a task (None if it is played with [seats]), and its seats before the league draws a player."""
        draw = seed_of("matchup", self.recipe.seed, task.id) / 2**63
        for matchup in self.matchups:
            share = matchup.section.share_at(step)
            if draw < share:
                return matchup, self._seated(matchup, task)
            draw -= share
        return None, self.seats

    def _seated(self, matchup: Matchup, task: Task) -> dict[Role, Occupant]:
        if matchup.one is None or matchup.others is None:
            return {**self.seats, **matchup.seats}
        mine = self.roles[seed_of("one", self.recipe.seed, task.id) % len(self.roles)]
        return {role: matchup.one if role == mine else matchup.others for role in self.roles}

    @property
    def starts(self) -> set[Snapshot]:
        """The `@start` snapshots that play in a matchup or serve a judge."""
        named = [who for m in self.matchups for who in m.named]
        for judge in self.recipe.judges.values():
            texts = (judge.policy, judge.against)
            named += [parse_one(text) for text in texts if text and text not in ("group", "reference")]
        return {who for who in named if isinstance(who, Snapshot) and who.at == "start"}

    @property
    def panel(self) -> list[One]:
        """The players against whom the league's alarm rates a policy."""
        league = self.recipe.league
        names = league.alarm.panel if league is not None and league.alarm is not None else ()
        return [Seats(self.recipe.policies).one(name) for name in names]

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots that the run must keep from the beginning of reinforcement learning."""
        found = self.starts | {who for who in self.panel if isinstance(who, Snapshot)}
        if self.algorithm.reference or self.recipe.league is not None:
            found |= {Snapshot(name) for name in self.trainable}
        return sorted(found, key=str)

    @property
    def trainable(self) -> list[str]:
        return [name for name, policy in self.recipe.policies.items() if policy.trainable]

    @property
    def saved(self) -> list[str]:
        """The names under which a checkpoint has weights: policies that are trained, and channels."""
        return [*self.trainable, *self.recipe.channels]

    @property
    def learning(self) -> dict[Role, Occupant]:
        """The roles that a trainable policy plays, with their occupants."""
        trainable = self.trainable
        return {role: who for role, who in self.seats.items() if learns(who, trainable)}

    def updated(self, step: int) -> list[str]:
        """The policies that learn in training step `step`."""
        train = self.recipe.train
        awake = [name for name in self.trainable if self.recipe.policies[name].learns(step)]
        if train.update == "together" or not awake:
            return awake
        return [awake[step // train.update_period % len(awake)]]

    def on(self, bases: Mapping[str, str]) -> RunPlan:
        """The same plan with other base models for some policies."""
        policies = {
            n: p.model_copy(update={"base": bases[n]}) if n in bases else p for n, p in self.recipe.policies.items()
        }
        return replace(self, recipe=self.recipe.model_copy(update={"policies": policies}))

    def settings(self, name: str) -> TrainSection:
        """[train] with the policy's own settings applied; `steps` counts only the steps in which the policy learns."""
        policy, train = self.recipe.policies[name], self.recipe.train
        own = {k: v for k in _OWN if (v := getattr(policy, k)) is not None}
        return train.model_copy(update={**own, "steps": sum(name in self.updated(s) for s in range(train.steps))})

    def task(self, index: int, split: str = "train", options: Mapping[str, Any] | None = None) -> Task:
        """Task number `index`; `options` override those of [env]."""
        given = {**self.options, **(options or {})}
        return envs.sample_task(self.recipe.env.name, given, split, index, self.recipe.seed)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the environment: those of [env], with the workflow that evolved."""
        found = self.recipe.env.options
        return found if self.workflow is None else {**found, "workflow": self.workflow}

"""A trained team that can be called: it plays tasks, and its roles answer messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType

from interplay.agents.calls import answered
from interplay.agents.model import ModelAgent
from interplay.agents.player import Stamp
from interplay.agents.remote import RemoteAgent
from interplay.algorithms import Independent
from interplay.api.loop import finished
from interplay.cli.evaluate import newest, with_evolved
from interplay.cli.quiet import quiet_libraries
from interplay.config import load as load_recipe
from interplay.errors import ConfigError, InterplayError, did_you_mean
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech, Team
from interplay.seats import RunPlan
from interplay.types import Episode, Message, Observation, Role, Task

ChatMessages = Sequence[Message | Mapping[str, str]]


class TrainedTeam:
    """The players of a recipe, with the weights of a checkpoint. Use it in a `with` block, or close it.

    >>> with ip.load("runs/demo") as team:                              # doctest: +SKIP
    ...     episode = team.play(0)
    ...     reply = team.chat("X", [{"role": "user", "content": "1 2 3"}])
    """

    def __init__(self, plan: RunPlan, team: Team) -> None:
        self.plan, self.team = plan, team

    @property
    def roles(self) -> tuple[Role, ...]:
        return self.plan.roles

    @property
    def seats(self) -> dict[Role, str]:
        """The policy, bot or model that plays each role."""
        return {role: str(who) for role, who in self.plan.seats.items()}

    def task(self, index: int, split: str = "test") -> Task:
        """Return task number `index` of a split of the recipe's environment."""
        return self.plan.task(index, split)

    def play(
        self, task: Task | int = 0, seats: Mapping[Role, str] | None = None, temperature: float | None = None,
        seed: int = 0,
    ) -> Episode:  # fmt: skip
        """Play one task and return the episode. A number means the test task with that number. `seats` assigns another
        policy, or bot:NAME, to some roles. The same seed gives the same episode."""
        played = self.task(task) if isinstance(task, int) else task
        for role in seats or {}:
            self._check(role)
        named = {role: self.plan.occupant(who) for role, who in (seats or {}).items()}
        seating = self.team.seating(lambda _: {**self.plan.seats, **named}, self._speech(temperature, None))
        recipe = self.plan.recipe
        runner = Runner(seed, recipe.rollout, Independent(1), recipe.reward)
        (episode,) = finished(lambda: asyncio.run(runner.run([played], seating)))
        if episode.error is not None:
            raise InterplayError(f"task {played.id} failed: {episode.error}")
        return episode

    def chat(
        self,
        role: Role,
        messages: ChatMessages,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int = 0,
    ) -> str:
        """Return the reply of a role's policy to messages ({"role": "user", "content": "…"}, or `Message`)."""
        self._check(role)
        agent = self.team.agent(role, self.plan.seats[role], self._speech(temperature, max_tokens))
        if not isinstance(agent, ModelAgent | RemoteAgent):
            raise ConfigError(f"{self.seats[role]} in role {role} is not a model; expected a role that a model plays.")
        said = tuple(m if isinstance(m, Message) else Message(m["role"], m["content"]) for m in messages)
        view = agent.look(Observation(said, fresh=True))
        stamp = Stamp(seed, Task("chat", self.plan.recipe.env.name, seed, {}), 0, "chat", 0)
        return finished(lambda: asyncio.run(answered(agent, view, stamp))).text

    def _speech(self, temperature: float | None, max_tokens: int | None) -> Speech:
        recipe = self.plan.recipe
        heat = recipe.eval.temperature if temperature is None else temperature
        return Speech(heat, max_tokens or recipe.sampling.max_tokens, recipe.eval.legal)

    def _check(self, role: Role) -> None:
        if role not in self.roles:
            raise ConfigError(f"'{role}' is not a role of this environment; {did_you_mean(role, self.roles)}")

    def close(self) -> None:
        self.team.close()

    def __enter__(self) -> TrainedTeam:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(source: str | PathLike[str], *changes: str, checkpoint: str | PathLike[str] | None = None) -> TrainedTeam:
    """Load the team of a run with its newest checkpoint, or the untrained team of a recipe file."""
    path = os.fspath(source)
    folder = None if checkpoint is None else Path(checkpoint)
    plan = with_evolved(path, resolve(load_recipe(path, changes), training=False), folder)
    quiet_libraries()
    sources = newest(path, plan, folder)
    return TrainedTeam(plan, Team(plan.recipe, sources))

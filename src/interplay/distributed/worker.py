"""A rollout worker: a process that plays episodes, with environments, tools and sandboxes of its own.

It has copies of the policies and engines of its own; or it uses the engines of other processes (`engine_actor.py`) and
has no weights at all.
`cluster.py` makes it a Ray actor. Randomness depends only on tasks and seeds. An episode is therefore the same on every
worker, except for rounding, which depends on the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interplay.config import parse
from interplay.distributed.engine_actor import ActorEngine, EngineActors
from interplay.distributed.holder import PolicyHolder
from interplay.engines.census import census
from interplay.engines.engine import Engine
from interplay.models.load import Loaded
from interplay.rollout.judging import JudgedGroup, Judging
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team, speech_of
from interplay.types import Episode, Occupant, Role, Task


@dataclass(frozen=True)
class EpisodeJob:
    """An episode to play: its task, its number among the episodes of that task, and who plays each role."""

    task: Task
    replica: int
    seats: Mapping[Role, Occupant]


@dataclass(frozen=True)
class JudgeJob:
    """Episodes of one task that a judge is asked about."""

    name: str
    episodes: Sequence[Episode]

    @property
    def task(self) -> Task:
        return self.episodes[0].task


WorkerJob = EpisodeJob | JudgeJob
WorkerResult = Episode | JudgedGroup


class RolloutWorker(PolicyHolder):
    """Plays episodes and asks judges about them. `recipe` is the recipe of the run; its bases are the folders that the
    run has prepared. `engines` are the actors that sample for it; without any, it samples itself."""

    def __init__(self, recipe: Mapping[str, Any], engines: Sequence[Any] = ()) -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        self.engines = EngineActors(engines)
        self.plan = resolve(parse(recipe))
        made = self.plan.recipe
        super().__init__(Team(made, elsewhere=self._elsewhere if engines else None))
        self.runner = Runner(made.seed, made.rollout, self.plan.algorithm.plan, made.reward, made.records.playouts)
        self.judging = Judging(self.plan, self.team, self.runner, scorers={})

    def _elsewhere(self, policy: str, loaded: Loaded) -> Engine:
        return ActorEngine(policy, self.engines, loaded)

    async def use_engines(self, actors: Sequence[Any]) -> None:
        """From now on, these actors sample."""
        self.engines.actors = actors

    async def work(self, jobs: Sequence[WorkerJob]) -> list[WorkerResult]:
        """Do several jobs concurrently."""
        census().deterministic = self.team.deterministic
        out: list[WorkerResult] = []
        for found in await census().gather(self._one(job) for job in jobs):
            if isinstance(found, BaseException):
                raise found
            out.append(found)
        return out

    async def _one(self, job: WorkerJob) -> WorkerResult:
        if isinstance(job, JudgeJob):
            await self.judging.judge_by(job.name, job.episodes)
            return self.judging.taken(job.episodes)
        seating = self.team.seating(lambda _: job.seats, speech_of(self.plan.recipe))
        return await self.runner.episode(job.task, job.replica, seating(job.task))

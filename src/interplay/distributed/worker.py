"""A rollout worker: a process that plays episodes. It has its own copies of the policies and its own engines.

`cluster.py` makes it a Ray actor. All its methods are coroutines on one event loop, so weights can be updated while
episodes are played. Randomness depends only on tasks and seeds. An episode is therefore the same on every worker,
except for rounding, which depends on the batch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interplay.config import parse
from interplay.engines.census import census
from interplay.models.adapter import Adapter
from interplay.models.latch import latch_of
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team, speech_of
from interplay.types import Episode, Occupant, Role, Snapshot, Task


@dataclass(frozen=True)
class EpisodeJob:
    """An episode to play: its task, its number among the episodes of that task, and who plays each role."""

    task: Task
    replica: int
    seats: Mapping[Role, Occupant]


@dataclass(frozen=True)
class NewWeights:
    """The weights of a policy: an adapter, or all tensors of the model by name."""

    version: int
    adapter: Adapter | None
    tensors: Mapping[str, Tensor]

    @property
    def nbytes(self) -> int:
        pairs = () if self.adapter is None else self.adapter.weights.values()
        return sum(t.nbytes for t in (*self.tensors.values(), *(t for pair in pairs for t in pair)))


class RolloutWorker:
    """Plays episodes. `recipe` is the recipe of the run; its bases are the folders that the run has prepared."""

    def __init__(self, recipe: Mapping[str, Any]) -> None:
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        self.plan = resolve(parse(recipe))
        made = self.plan.recipe
        self.team = Team(made)
        self.runner = Runner(made.seed, made.rollout, self.plan.algorithm.plan, made.reward, made.records.playouts)
        self.snapshots: set[Snapshot] = set()

    async def pid(self) -> int:
        """Return the process id. Tests use it to kill the worker."""
        return os.getpid()

    async def update(self, weights: Mapping[str, NewWeights]) -> float:
        """Load new weights and clear everything that was computed with older weights. Return how many seconds the
        engines have computed so far."""
        for name, new in weights.items():
            member = self.team.members[name]
            if member.adapter is not None and new.adapter is not None:
                member.adapter.overwrite(new.adapter)
                member.publish(new.version)
                continue
            model = member.loaded.model
            with latch_of(model).writing(), torch.no_grad():
                for key, parameter in model.named_parameters():
                    parameter.copy_(new.tensors[key])
                member.publish(new.version)
        for engine in self.team.engines:
            engine.flush()
        return sum(engine.stats().seconds for engine in self.team.engines)

    async def seat(self, wanted: Mapping[Snapshot, str]) -> None:
        """Load these snapshots from their folders and release all other snapshots."""
        for who in self.snapshots - set(wanted):
            self.team.pool.release(who)
        for who in sorted(set(wanted) - self.snapshots, key=str):
            self.team.snapshot(who, Path(wanted[who]))
        self.snapshots = set(wanted)

    async def play(self, jobs: Sequence[EpisodeJob]) -> list[Episode]:
        """Play several episodes concurrently."""
        census().deterministic = self.team.deterministic
        out: list[Episode] = []
        for found in await census().gather(self._one(job) for job in jobs):
            if isinstance(found, BaseException):
                raise found
            out.append(found)
        return out

    async def _one(self, job: EpisodeJob) -> Episode:
        seating = self.team.seating(lambda _: job.seats, speech_of(self.plan.recipe))
        return await self.runner.episode(job.task, job.replica, seating(job.task))

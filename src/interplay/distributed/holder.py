"""A process that holds copies of the policies of a run and takes new weights: what rollout workers and engines share.

All methods of the actors are coroutines on one event loop, so weights can be updated while episodes are played.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from interplay.models.adapter import Adapter
from interplay.models.latch import latch_of
from interplay.rollout.team import Team
from interplay.training.probe import scores
from interplay.types import Sample, Snapshot


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


class PolicyHolder:
    def __init__(self, team: Team) -> None:
        self.team = team
        self.snapshots: set[Snapshot] = set()

    async def pid(self) -> int:
        """Return the process id. It also shows that the actor is alive."""
        return os.getpid()

    async def update(self, weights: Mapping[str, NewWeights]) -> tuple[float, float]:
        """Load new weights and clear everything that was computed with older weights. Return the time, by the clock
        of this process, and how many seconds an engine has computed so far (the mean of all engines)."""
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
                if member.loaded.senses is not None:
                    member.loaded.senses.moved()
                member.publish(new.version)
        for engine in self.team.engines:
            engine.flush()
        engines = self.team.engines
        return time.monotonic(), sum(engine.stats().seconds for engine in engines) / max(len(engines), 1)

    async def score(self, policy: str, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """The log-probs of the replies of these samples in the engine of a policy."""
        return (await scores([(self.team.members[policy], samples)]))[0]

    async def seat(self, wanted: Mapping[Snapshot, str]) -> None:
        """Load these snapshots from their folders and release all other snapshots."""
        for who in self.snapshots - set(wanted):
            self.team.pool.release(who)
        for who in sorted(set(wanted) - self.snapshots, key=str):
            self.team.snapshot(who, Path(wanted[who]))
        self.snapshots = set(wanted)

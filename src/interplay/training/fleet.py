"""The interface of processes that play the episodes of training.

They are passed in, since this package may not import `distributed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from interplay.rollout.judging import JudgedGroup
from interplay.rollout.runner import Seated
from interplay.types import Episode, Sample, Task


class Fleet(Protocol):
    async def episode(self, task: Task, replica: int, seated: Seated) -> Episode:
        """Play one episode."""
        ...

    async def judge(self, name: str, episodes: Sequence[Episode]) -> JudgedGroup:
        """Ask a judge about the episodes of one task."""
        ...

    async def sync(self) -> None:
        """Give all of them the newest weights."""
        ...

    async def score(self, policy: str, samples: Sequence[Sample]) -> dict[str, list[tuple[float, ...]]]:
        """The log-probs of the replies of these samples, by the name of the engine."""
        ...

    def metrics(self) -> dict[str, float]:
        """What the processes did since the last call."""
        ...

    def close(self) -> None:
        """End the processes."""
        ...

"""Math by debate: agents answer at once over several rounds, and a majority vote decides (MAPoRL)."""

from __future__ import annotations

from interplay.envs.tasks.debate import DebateEnv
from interplay.envs.tasks.math.question import MathQuestion
from interplay.types import Observation, Role


class MathDebate(MathQuestion, DebateEnv):
    @property
    def agents(self) -> int:
        return int(self.task.data["agents"])

    @property
    def rounds(self) -> int:
        return int(self.task.data["rounds"])

    def seen(self) -> dict[Role, Observation]:
        return DebateEnv.observe(self)

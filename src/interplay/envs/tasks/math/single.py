"""Math by the reasoner alone: one reply."""

from __future__ import annotations

from typing import ClassVar

from interplay.envs.tasks.math.debate import MathDebate
from interplay.types import Role


class MathSingle(MathDebate):
    """A debate of one agent in one round."""

    alone: ClassVar[Role] = "reasoner"

    @property
    def agents(self) -> int:
        return 1

    @property
    def rounds(self) -> int:
        return 1

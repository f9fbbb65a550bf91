"""An environment with one question: the designer proposes a better workflow. Its score is known after it was played."""

from __future__ import annotations

from typing import ClassVar

from interplay.envs.env import Env
from interplay.types import Message, Observation, Rewards, Role, Task

DESIGNER = "designer"


class Designing(Env):
    """The prompt of the designer is `brief` in the task's data."""

    roles = (DESIGNER,)
    reward_names: ClassVar[tuple[str, ...]] = ("design", "failed", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: str | None = None

    def observe(self) -> dict[Role, Observation]:
        if self.said is not None:
            return {}
        return {DESIGNER: Observation((Message("user", str(self.task.data["brief"])),), fresh=True)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said = actions[DESIGNER]
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return self.said or ""

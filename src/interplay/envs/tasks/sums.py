"""Addition: the smallest task with a right answer. One role, one turn.

Roles         solver.
Observation   "What is 17 + 25?", which is the whole prompt.
Actions       any text; the last whole number in it is the answer.
Rewards       `correct` (agent, at the end): 1 if the answer is the sum, else 0. A reply without a number is not an
              answer and scores 0; nothing is illegal. Echoing the question gives its second number, which is never the
              sum.
Version       1
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.rewards.reply import spoken
from interplay.types import Message, Observation, Rewards, Role, Task

_NUMBER = re.compile(r"-?\d+")


class Options(Section):
    digits: int = Field(2, ge=1, le=12, description="the most digits of each of the two numbers")


@register("sums")
class Sums(Env):
    Options = Options
    reward_names: ClassVar[tuple[str, ...]] = ("correct",)
    roles = ("solver",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        top = 10 ** task.data["digits"] - 1
        self.a, self.b = self.rng.randint(1, top), self.rng.randint(1, top)
        self.answer: str | None = None

    def observe(self) -> dict[Role, Observation]:
        if self.answer is not None:
            return {}
        return {"solver": Observation((Message("user", f"What is {self.a} + {self.b}?"),), fresh=True)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.answer = actions["solver"]
        return Rewards()

    def outcome(self) -> Rewards:
        found = _NUMBER.findall(spoken(self.answer or "").replace(",", ""))
        right = bool(found) and len(found[-1]) < 20 and int(found[-1]) == self.a + self.b
        return Rewards.agent("correct", {"solver": float(right)})

    def state(self) -> str:
        return f"{self.a} + {self.b}; answered: {self.answer or 'nothing yet'}"

    def fork(self, seed: int | None = None) -> Sums:
        return self.twin()  # there is no randomness after the draw

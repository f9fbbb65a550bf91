"""An environment whose turns cost time outside of the model, for `cluster.py`.

After every reply a tool is called: it computes (and so occupies a core), or it only waits. At most `slots` of
them run at once in a process. How long one takes depends on the task, the turn and the reply alone.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs import Env
from interplay.types import Message, Observation, Rewards, Role, Task

LOOPS = 2e7  # turns of the loop in `_compute` that count as one second of work


class Labour(Env):
    """One role replies `turns` times on average; the tool's times are log-normal."""

    roles = ("labourer",)
    reward_names = ("short",)
    _free: ClassVar[dict[int, asyncio.Semaphore]] = {}  # by event loop

    class Options(Section):
        how: Literal["compute", "wait"] = Field("compute", description="what the tool does")
        mean: float = Field(0.05, gt=0, description="mean seconds of the tool; of work, if it computes")
        spread: float = Field(0.5, ge=0, description="standard deviation of the logarithm of these seconds")
        turns: int = Field(3, ge=1, description="mean number of turns; 1 to twice as many less one, all as likely")
        slots: int = Field(1, ge=1, description="tools that may run at once in one process")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        data = self.data = task.data
        self.left = Random(f"turns {task.seed}").randint(1, 2 * data["turns"] - 1)
        self.due: float | None = None  # seconds of the tool that has been called
        self.spent: list[float] = []  # measured seconds of each call, without the time it waited for a slot
        self.computed: list[float] = []  # CPU seconds of each call

    def observe(self) -> dict[Role, Observation]:
        if not self.left:
            return {}
        return {"labourer": Observation((Message("user", f"{self.left} left. Say something."),))}

    def step(self, actions: dict[Role, str]) -> Rewards:
        text, mean, spread = actions["labourer"], self.data["mean"], self.data["spread"]
        dice = Random(f"{self.task.seed} {self.left} {text}")
        self.due = dice.lognormvariate(math.log(mean) - spread**2 / 2, spread)
        self.left -= 1
        return Rewards.agent("short", {"labourer": float(len(text) < 3)})

    async def settle(self) -> None:
        if self.due is None:
            return
        loop = asyncio.get_running_loop()
        free = self._free.setdefault(id(loop), asyncio.Semaphore(self.data["slots"]))
        due, self.due = self.due, None
        async with free:
            began = time.perf_counter()
            computed = await asyncio.to_thread(_compute if self.data["how"] == "compute" else _wait, due)
            self.spent.append(time.perf_counter() - began)
            self.computed.append(computed)

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        return json.dumps(asdict(Effort(os.getpid(), time.process_time(), self.spent, self.computed)))


@dataclass(frozen=True)
class Effort:
    """The work of an episode, from its record: the process that played it, the CPU seconds that this process had used
    by the end of it, and for each turn the tool's seconds and CPU seconds."""

    process: int
    used: float
    spent: list[float]
    computed: list[float]


def effort(final_state: str) -> Effort:
    return Effort(**json.loads(final_state))


def _wait(seconds: float) -> float:
    time.sleep(seconds)
    return 0.0


def _compute(seconds: float) -> float:
    """Occupy a core with Python code, which also keeps the other threads of this process from running Python code.
    Returns the CPU seconds."""
    began, total = time.thread_time(), 0
    for i in range(int(seconds * LOOPS)):
        total += i * i
    return time.thread_time() - began


def options(given: Mapping[str, object]) -> list[str]:
    """Overrides of a recipe that set options of this environment."""
    return [f"env.{name}={value}" for name, value in given.items()]

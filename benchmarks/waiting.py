"""An environment whose tool waits, for `stream.py`: word problems with a calculator that answers after a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from interplay.envs.tasks.math.question import MathQuestion
from interplay.envs.tasks.math.single import MathSingle
from interplay.types import Observation, Role


class WaitingMath(MathSingle):
    """`env.name = "math"` with one reasoner. Like a real service, every call of a tool takes `shortest` to `longest`
    seconds; the time depends only on the task and the arguments. While `waits` is False no call waits: this is for the
    demonstrations, which are played one after another."""

    waits: ClassVar[bool] = True

    class Options(MathQuestion.Options):
        shortest: float = Field(1.0, ge=0, description="seconds that a call takes at least")
        longest: float = Field(3.0, ge=0, description="seconds that a call takes at most")

    def observe(self) -> dict[Role, Observation]:
        slow: Callable[..., Any] = self._slow
        seen = super().observe()
        return {r: replace(o, tools=tuple(replace(t, run=slow(t.run)) for t in o.tools)) for r, o in seen.items()}

    def _slow(self, run: Callable[..., str]) -> Callable[..., str]:
        data, task = self.task.data, self.task.id

        def waiting(**arguments: Any) -> str:
            if self.waits:
                time.sleep(Random(f"{task} {sorted(arguments.items())}").uniform(data["shortest"], data["longest"]))
            return run(**arguments)

        return waiting

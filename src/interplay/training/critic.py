"""A critic of states, for trees whose candidates are continued by a value instead of by playing on.

It reads the role and `Env.state()` after the candidate's step, and learns from the lines that were kept: the return
of the turn less what the step itself earned. Requests from many episodes are answered in one forward pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from interplay.agents.render import Renderer
from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.envs import Env
from interplay.training.learner import Critic
from interplay.types import Message, Rewards, Role, Turn

_QUIET_CYCLES = 4


class StateCritic:
    def __init__(self, critics: Mapping[str, Critic], renderers: Mapping[str, Renderer]) -> None:
        self.critics, self.renderers = critics, renderers
        self._waiting: list[tuple[Turn, asyncio.Future[float]]] = []
        self._flush: asyncio.Task[None] | None = None

    async def value(self, role: Role, env: Env, turn: Turn) -> float:
        renderer = self.renderers[turn.policy]
        turn.after = renderer.prompt((Message("user", f"{env.state()}\nYou are {role}."),)).ids
        loop = asyncio.get_running_loop()
        future: asyncio.Future[float] = loop.create_future()
        self._waiting.append((turn, future))
        if self._flush is None or self._flush.done():
            self._flush = loop.create_task(self._answer())
        return await future

    async def _answer(self) -> None:
        quiet, before = 0, -1
        while quiet < _QUIET_CYCLES:
            quiet, before = (quiet + 1 if len(self._waiting) == before else 0), len(self._waiting)
            await asyncio.sleep(0)
        batch, self._waiting = self._waiting, []
        for name, critic in self.critics.items():
            mine = [(turn, future) for turn, future in batch if turn.policy == name]
            values = critic.values([replace(turn, prompt=turn.after) for turn, _ in mine])
            for (_, future), value in zip(mine, values, strict=True):
                if not future.done():
                    future.set_result(value)

    def step(self, lines: Sequence[Sequence[Turn]], weights: RewardSection) -> dict[str, float]:
        """Learn from each role's kept turns, in order."""
        examples: dict[str, list[Turn]] = {name: [] for name in self.critics}
        for line in lines:
            for turn, ahead in zip(line, credit.returns(line, weights), strict=True):
                if turn.after and turn.outlook is not None:
                    step = Rewards(tuple(r for r in turn.outlook if r.name != "critic"))
                    target = ahead - credit.mix(step, turn.role, weights)
                    examples[turn.policy].append(replace(turn, prompt=turn.after, target=target))
        return {f"{n}/{k}": v for n, critic in self.critics.items() for k, v in critic.step(examples[n]).items()}

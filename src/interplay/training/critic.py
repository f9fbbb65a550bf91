"""A critic of states, for trees whose candidates are continued by a value instead of by playing on.

It reads the role and `Env.state()` after the candidate's step, and learns from the lines that were kept: from the state
they really came to (where several act at once that is not the one a candidate was scored in), the return of the turn
less what the step itself earned. Requests from many episodes are answered in one forward pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial

from interplay.agents.render import Renderer
from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.engines.rounds import rounds
from interplay.envs import Env
from interplay.errors import EngineError
from interplay.training.learner import Critic
from interplay.types import Message, Rewards, Role, Turn


class StateCritic:
    thread: Executor | None = None

    def __init__(
        self, critics: Mapping[str, Critic], renderers: Mapping[str, Renderer], weights: RewardSection
    ) -> None:
        self.critics, self.renderers, self.weights = critics, renderers, weights
        self._waiting: list[tuple[Turn, asyncio.Future[float]]] = []
        self._taken: list[tuple[Turn, asyncio.Future[float]]] = []
        self._arrived: dict[str, tuple[tuple[int, ...], float]] = {}  # turn id -> the state as ids, what the step paid

    async def value(self, role: Role, env: Env, turn: Turn) -> float:
        seen = view_of(self.renderers[turn.policy], role, env.state())
        loop = asyncio.get_running_loop()
        future: asyncio.Future[float] = loop.create_future()
        self._waiting.append((replace(turn, prompt=seen), future))
        rounds().serve(self)
        return await future

    def arrived(self, role: Role, env: Env, turn: Turn, rewards: Rewards) -> None:
        seen = view_of(self.renderers[turn.policy], role, env.state())
        self._arrived[turn.id] = seen, credit.mix(rewards, role, self.weights)

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        return bool(self._waiting)

    def take(self) -> None:
        self._taken, self._waiting = self._waiting, []

    def step(self) -> list[Callable[[], None]]:
        out: list[Callable[[], None]] = []
        for name, critic in self.critics.items():
            mine = [(turn, future) for turn, future in self._taken if turn.policy == name]
            values = critic.values([turn for turn, _ in mine])
            out += [partial(_answer, future, value) for (_, future), value in zip(mine, values, strict=True)]
        return out

    def fail(self, error: Exception) -> None:
        for _, future in self._taken:
            if not future.done():
                future.set_exception(EngineError(f"the critic failed: {type(error).__name__}: {error}"))

    def learn(self, lines: Sequence[Sequence[Turn]]) -> dict[str, float]:
        """Learn from each role's kept turns, in order."""
        examples: dict[str, list[Turn]] = {name: [] for name in self.critics}
        for line in lines:
            for turn, ahead in zip(line, credit.returns(line, self.weights), strict=True):
                if turn.id in self._arrived:
                    seen, paid = self._arrived[turn.id]
                    examples[turn.policy].append(replace(turn, prompt=seen, target=ahead - paid))
        self._arrived.clear()
        return {f"{n}/{k}": v for n, critic in self.critics.items() for k, v in critic.step(examples[n]).items()}


def view_of(renderer: Renderer, role: Role, state: str) -> tuple[int, ...]:
    """What a central critic reads: the whole state, and whose value is asked for."""
    return renderer.prompt((Message("user", f"{state}\nYou are {role}."),)).ids


def _answer(future: asyncio.Future[float], value: float) -> None:
    if not future.done():
        future.set_result(value)

"""A remote model in a role for the length of one episode: it is sent messages, and what it says is text.

It has the face of `ModelAgent`, and keeps its role's conversation as messages; there are no ids to keep.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

from interplay.agents.agent import Stamp, View, blank
from interplay.engines.engine import Engine, Request, Sampling
from interplay.envs import Env
from interplay.types import Message, Observation, Role, Status, Stop, Turn, seed_of


@dataclass(slots=True)
class RemoteAgent:
    role: Role
    policy: str
    engine: Engine
    sampling: Sampling
    trainable: bool = False
    history: tuple[Message, ...] = ()
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        before = () if observation.fresh else self.history
        return View(observation, messages=before + observation.messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        key = (stamp.seed, stamp.task.id, stamp.replica, stamp.path, stamp.decision, self.role, stamp.candidate)
        began = time.monotonic()
        request = Request(key, (), seed_of(*key), self.sampling, messages=view.messages)
        completion = await self.engine.generate(request)
        turn = blank(self.role, self.policy, view.observation, stamp, "", completion.text, self.parent)
        turn.used, turn.temperature = completion.used, self.sampling.temperature
        turn.status = Status.LENGTH if completion.stop is Stop.LENGTH else Status.OK
        turn.seconds = time.monotonic() - began
        return turn

    def commit(self, view: View, turn: Turn) -> None:
        self.history = (*view.messages, Message("assistant", turn.text))
        self.parent = turn.id

    def fork(self) -> RemoteAgent:
        return copy.copy(self)

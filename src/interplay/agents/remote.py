"""A remote model that plays a role. It is sent messages and replies with text.

It has the same interface as `ModelAgent`, and keeps the role's conversation as messages, because there are no token
ids. Tools are described in its first message, and it calls one by writing a line (`Plain`), which works with every
server.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field, replace

from interplay.agents.calls import Asked, answered, followed
from interplay.agents.player import Stamp, View
from interplay.agents.syntax import Plain, Wanted
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.envs import Env
from interplay.types import Message, Observation, Role, Sample, Stop, Turn, seed_of

_SYNTAX = Plain("user")


@dataclass(slots=True)
class RemoteAgent:
    role: Role
    policy: str
    engine: Engine
    sampling: Sampling
    trainable: bool = False
    tools: ToolSection = field(default_factory=ToolSection)
    budget: int | None = None
    history: tuple[Message, ...] = ()
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        if not self.tools.calls and observation.tools:
            observation = replace(observation, tools=())
        before = () if observation.fresh else self.history
        return View(observation, messages=before + observation.messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        return await answered(self, view, stamp)

    async def generate(self, view: View, stamp: Stamp, asked: Asked) -> tuple[Sample, Stop]:
        key, name = stamp.key(self.role, asked.call), stamp.turn_id(self.role)
        told = _SYNTAX.chat(view.messages, view.observation.tools)
        messages = tuple(replace(m, **words) for m, words in zip(view.messages, told, strict=True))
        began = time.monotonic()
        found = await self.engine.generate(Request(key, (), seed_of(*key), asked.sampling, messages=messages))
        sample = Sample(
            f"{name}.{asked.call}" if asked.call else name, (), (), (), (), found.text, asked.sampling.temperature,
            messages=asked.new, used=found.used, seconds=time.monotonic() - began,
        )  # fmt: skip
        return sample, found.stop

    def wanted(self, view: View, sample: Sample) -> Wanted:
        return _SYNTAX.calls(sample.text, view.observation.tools) if view.observation.tools else []

    def harmless(self, output: str) -> str:
        return output  # the server applies the chat template, so special tokens are its responsibility

    def follow(self, view: View, sample: Sample, outputs: tuple[Message, ...]) -> View:
        return View(view.observation, messages=(*view.messages, Message("assistant", sample.text), *outputs))

    def commit(self, view: View, turn: Turn) -> None:
        view = followed(self, view, turn)
        self.history = (*view.messages, Message("assistant", turn.text))
        self.parent = turn.id

    def fork(self) -> RemoteAgent:
        return copy.copy(self)

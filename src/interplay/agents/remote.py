"""A remote model in a role for the length of one episode: it is sent messages, and what it says is text.

It has the face of `ModelAgent`, and keeps its role's conversation as messages; there are no ids to keep. Tools are
described to it in its first message, and called by a line (`Plain`): what every server can pass on.
"""

from __future__ import annotations

import copy
import itertools
import time
from dataclasses import dataclass, field, replace

from interplay.agents.agent import Stamp, View, answered, blank, key_of
from interplay.agents.syntax import Plain, Wanted
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.envs import Env
from interplay.types import Message, Observation, Role, Status, Stop, Turn, seed_of

_SYNTAX = Plain("user")


@dataclass(slots=True)
class RemoteAgent:
    role: Role
    policy: str
    engine: Engine
    sampling: Sampling
    trainable: bool = False
    tools: ToolSection = field(default_factory=ToolSection)
    budget: int | None = None  # tokens for all model calls of one decision together
    history: tuple[Message, ...] = ()
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        if not self.tools.calls and observation.tools:
            observation = replace(observation, tools=())
        before = () if observation.fresh else self.history
        return View(observation, messages=before + observation.messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        return await answered(self, view, stamp)

    async def generate(
        self, view: View, stamp: Stamp, sampling: Sampling, parent: str | None, call: int, new: tuple[Message, ...]
    ) -> Turn:
        key = key_of(self.role, stamp, call)
        told = _SYNTAX.chat(view.messages, view.observation.tools)
        messages = tuple(replace(m, **words) for m, words in zip(view.messages, told, strict=True))
        began = time.monotonic()
        completion = await self.engine.generate(Request(key, (), seed_of(*key), sampling, messages=messages))
        turn = blank(self.role, self.policy, view.observation, stamp, "", completion.text, parent)
        if call:
            turn.id, turn.call, turn.messages = f"{turn.id}.{call}", call, new
        turn.used, turn.temperature = completion.used, sampling.temperature
        turn.status = Status.LENGTH if completion.stop is Stop.LENGTH else Status.OK
        turn.seconds = time.monotonic() - began
        return turn

    def wanted(self, view: View, turn: Turn) -> Wanted:
        return _SYNTAX.calls(turn.text, view.observation.tools) if view.observation.tools else []

    def harmless(self, output: str) -> str:
        return output  # the server writes its model's markers itself

    def follow(self, view: View, turn: Turn, outputs: tuple[Message, ...]) -> View:
        return View(view.observation, messages=(*view.messages, Message("assistant", turn.text), *outputs))

    def commit(self, view: View, turn: Turn) -> None:
        for call, after in itertools.pairwise(turn.whole):
            view = self.follow(view, call, after.messages)
        self.history = (*view.messages, Message("assistant", turn.text))
        self.parent = turn.id

    def fork(self) -> RemoteAgent:
        return copy.copy(self)

"""A remote model that plays a role. It is sent messages and replies with text.

It has the same interface as `ModelAgent`, and keeps the role's conversation as messages, because there are no token
ids. Tools are described in its first message, and it calls one by writing a line (`Plain`), which works with every
server.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from interplay.agents.calls import Asked, answered, followed
from interplay.agents.memory import spoken_in, written
from interplay.agents.player import Stamp, View, refuse_media, turn_of
from interplay.agents.syntax import Plain, Wanted
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.envs import Env
from interplay.errors import ConfigError
from interplay.types import Message, Observation, ProgramCall, Role, Sample, Status, Stop, Turn, seed_of

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
    asked: Mapping[str, int] = field(default_factory=dict)  # for outside programs: how often each prompt was asked
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        if observation.call is not None and observation.fresh:
            refuse_media(self.role, observation.messages, self.engine.capabilities.media)
            self._refuse_mask(observation.call)
            said = (replace(m, content=written(_SYNTAX, m), tool_calls=()) for m in observation.messages)
            return View(observation, messages=tuple(said))
        if not self.tools.calls and observation.tools:
            observation = replace(observation, tools=())
        before = () if observation.fresh else self.history
        return View(observation, messages=before + observation.messages)

    def _refuse_mask(self, call: ProgramCall) -> None:
        """Raise if the program takes only listed replies: a server cannot be restricted to a list, and the program
        would get replies that it did not allow."""
        if call.only:
            raise ConfigError(
                f"the program takes only listed replies of the role '{self.role}' (a strict JSON schema, a required "
                "tool call or env.route), and a remote model cannot be restricted to a list; expected a policy of this "
                "run in that seat, or a program that takes any reply."
            )

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        call = view.observation.call
        if call is None:
            return await answered(self, view, stamp)
        digest = hashlib.blake2b(repr(view.messages).encode(), digest_size=8).hexdigest()
        stamp = replace(stamp, asked=(digest, self.asked.get(digest, 0)))
        limit = min(self.sampling.max_tokens, call.max_tokens or self.sampling.max_tokens)
        sampling = replace(self.sampling, max_tokens=limit, stop_strings=(*self.sampling.stop_strings, *call.stop))
        sample, stop = await self.generate(view, stamp, Asked(sampling, 0, view.observation.messages))
        turn = turn_of(stamp, self.role, self, view.observation, (sample,), digest)
        turn.status = Status.LENGTH if stop is Stop.LENGTH else Status.OK
        turn.spoken = spoken_in(_SYNTAX, sample.text, call, sample.id)
        return turn

    async def generate(self, view: View, stamp: Stamp, asked: Asked) -> tuple[Sample, Stop]:
        key, name = stamp.key(self.role, asked.call), stamp.turn_id(self.role)
        call = view.observation.call
        told = _SYNTAX.chat(view.messages, view.observation.tools if call is None else call.tools)
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
        if view.observation.call is not None:
            digest = turn.keys.prompt
            self.asked = {**self.asked, digest: self.asked.get(digest, 0) + 1}
        view = followed(self, view, turn)
        self.history = (*view.messages, Message("assistant", turn.text))
        self.parent = turn.id

    def fork(self) -> RemoteAgent:
        return copy.copy(self)

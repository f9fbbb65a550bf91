"""A local model that plays a role. It keeps the role's conversation with its token ids, so that nothing is tokenised
twice."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field, replace

from interplay.agents.calls import Asked, answered, followed
from interplay.agents.player import Stamp, View
from interplay.agents.render import Renderer, Said
from interplay.agents.syntax import Wanted
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.envs import Env
from interplay.types import Message, Observation, Role, Sample, Stop, Turn, seed_of


@dataclass(slots=True)
class ModelAgent:
    role: Role
    policy: str
    trainable: bool
    engine: Engine
    renderer: Renderer
    sampling: Sampling
    adapter: str | None = None  # the engine's name for it; None is the base model alone
    legal: bool = False  # if the observation lists legal actions, only these can be sampled
    tools: ToolSection = field(default_factory=ToolSection)
    budget: int | None = None
    history: tuple[Message, ...] = ()
    said: Said | None = None
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        if not self.tools.calls and observation.tools:
            observation = replace(observation, tools=())
        if any(m.media for m in observation.messages):
            kinds = self.engine.capabilities.media
            observation = replace(observation, messages=tuple(m.only(kinds) for m in observation.messages))
        keep = not observation.fresh
        messages = (self.history if keep else ()) + observation.messages
        prompt = self.renderer.prompt(messages, self.said if keep else None, observation.tools)
        return View(observation, prompt, messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        return await answered(self, view, stamp)

    async def generate(self, view: View, stamp: Stamp, asked: Asked) -> tuple[Sample, Stop]:
        prompt = view.prompt
        assert prompt is not None
        key = stamp.key(self.role, asked.call)
        mask = self.renderer.replies(view.observation.legal) if self.legal else ()
        began = time.monotonic()
        request = Request(key, prompt.ids, seed_of(*key), asked.sampling, self.adapter, mask, media=prompt.media)
        completion = await self.engine.generate(request)
        name = stamp.turn_id(self.role)
        sample = Sample(
            f"{name}.{asked.call}" if asked.call else name,
            prompt.ids,
            completion.tokens,
            completion.logprobs,
            completion.versions,
            self.renderer.decode(completion.tokens)[0],
            asked.sampling.temperature,
            mask,
            prompt.media,
            prompt.extends,
            asked.new,
            seconds=time.monotonic() - began,
        )
        return sample, completion.stop

    def wanted(self, view: View, sample: Sample) -> Wanted:
        tools = view.observation.tools
        return self.renderer.syntax.calls(sample.text, tools) if tools and not sample.mask else []

    def harmless(self, output: str) -> str:
        return self.renderer.harmless(output)

    def follow(self, view: View, sample: Sample, outputs: tuple[Message, ...]) -> View:
        messages = (*view.messages, Message("assistant", sample.text), *outputs)
        prompt = self.renderer.prompt(messages, self._said(view, sample), view.observation.tools)
        return View(view.observation, prompt, messages)

    def _said(self, view: View, sample: Sample) -> Said:
        assert view.prompt is not None
        reply, ended = self.renderer.decode(sample.action)
        return Said(view.prompt, sample.action, reply, ended, sample.id)

    def commit(self, view: View, turn: Turn) -> None:
        if not turn.is_model:  # a reply without sampled ids: the next prompt must be rendered from scratch
            self.history, self.said = (*view.messages, Message("assistant", turn.text)), None
            return
        view = followed(self, view, turn)
        self.said = self._said(view, turn.last)
        self.history = (*view.messages, Message("assistant", self.said.reply))
        self.parent = turn.id

    def fork(self) -> ModelAgent:
        return copy.copy(self)  # a shallow copy is enough: all its values are immutable or shared

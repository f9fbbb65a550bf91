"""A local model that plays a role. It keeps the role's conversation with its token ids, so that nothing is tokenised
twice."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

from interplay.agents.calls import Asked, answered, followed
from interplay.agents.memory import Memory, spoken_in, written
from interplay.agents.player import Stamp, View, refuse_media, turn_of
from interplay.agents.render import Renderer, Said
from interplay.agents.soft import ChannelLink
from interplay.agents.syntax import Wanted
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.engines.pause import pausable
from interplay.envs import Env
from interplay.types import Message, Observation, ProgramCall, Role, Sample, Spoken, Status, Stop, Turn, seed_of


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
    links: tuple[ChannelLink, ...] = ()  # channels to this agent
    history: tuple[Message, ...] = ()
    said: Said | None = None
    memory: Memory = field(default_factory=Memory)  # what was said to an outside program
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        if observation.call is not None and observation.fresh:
            refuse_media(self.role, observation.messages, self.engine.capabilities.media)
            most = self.engine.limits().context_tokens
            if most is not None:
                begin = self.renderer.beginning(observation.messages, observation.call.tools, most)
                if begin is not None:  # `_asked` refuses it
                    return View(observation, begin)
            found = self.memory.recall(self.renderer, observation.messages, observation.call)
            return View(observation, found.prompt, found.messages, found)
        if not self.tools.calls and observation.tools:
            observation = replace(observation, tools=())
        if any(m.media for m in observation.messages):
            kinds = self.engine.capabilities.media | {"soft"}
            observation = replace(observation, messages=tuple(m.only(kinds) for m in observation.messages))
        keep = not observation.fresh
        messages = (self.history if keep else ()) + observation.messages
        prompt = self.renderer.prompt(messages, self.said if keep else None, observation.tools)
        return View(observation, prompt, messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        call = view.observation.call
        if call is None:
            return await answered(self, view, stamp)
        return await self._asked(view, call, stamp)

    async def _asked(self, view: View, call: ProgramCall, stamp: Stamp) -> Turn:
        """The reply to an outside program, which runs its tools itself."""
        assert view.prompt is not None
        times = view.recalled.times if view.recalled else self.memory.asked.get(view.prompt.digest, 0)
        stamp = replace(stamp, asked=(view.prompt.digest, times))
        most = self.engine.limits().context_tokens
        room = self.sampling.max_tokens if most is None else most - len(view.prompt.ids)
        if room < 1:
            turn = turn_of(stamp, self.role, self, view.observation, "", view.prompt.digest)
            size = f"{'' if view.recalled else 'more than '}{len(view.prompt.ids):,}"
            why = f"the prompt has {size} tokens, and this model reads at most {most:,}."
            turn.status, turn.spoken = Status.LENGTH, Spoken("", refused=why)
            return turn
        limit = min(self.sampling.max_tokens, room, call.max_tokens or room)
        stops = tuple(dict.fromkeys((*self.sampling.stop_strings, *call.stop)))
        sampling = replace(self.sampling, max_tokens=limit, stop_strings=stops)
        sample, stop = await self.generate(view, stamp, Asked(sampling, 0, view.observation.messages))
        sample = replace(sample, history=view.recalled.history if view.recalled else "")
        spoken = spoken_in(self.renderer.syntax, sample.text, call, sample.id)
        if spoken.calls:
            sample = replace(sample, tool="+".join(sorted({c.name for c in spoken.calls})))
        turn = turn_of(stamp, self.role, self, view.observation, (sample,), view.prompt.digest)
        turn.status = Status.LENGTH if stop is Stop.LENGTH else Status.OK
        turn.spoken = replace(spoken, pieces=self.renderer.pieces(sample.action)) if call.logprobs else spoken
        return turn

    async def generate(self, view: View, stamp: Stamp, asked: Asked) -> tuple[Sample, Stop]:
        prompt = view.prompt
        assert prompt is not None
        key = stamp.key(self.role, asked.call)
        mask = self._mask(view.observation)
        began = time.monotonic()
        request = Request(key, prompt.ids, seed_of(*key), asked.sampling, self.adapter, mask, media=prompt.media)
        completion = await pausable(lambda: self.engine.generate(request))
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

    def _mask(self, observation: Observation) -> tuple[tuple[int, ...], ...]:
        """The only replies that can be given, if the recipe asks for that. An empty result allows every reply."""
        if observation.call is not None and observation.call.only:
            texts = [Message("assistant", s.content, tool_calls=s.calls) for s in observation.call.only]
            return self.renderer.replies(tuple(written(self.renderer.syntax, m) for m in texts))
        return self.renderer.replies(observation.legal) if self.legal else ()

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
        call = view.observation.call
        if call is not None and view.recalled is not None:
            if turn.is_model and turn.spoken is not None:
                self.memory = self.memory.remember(view.recalled, call, turn.spoken, self.renderer, turn.last)
                self.parent = turn.id
            else:
                self.memory = self.memory.again(view.recalled.prompt.digest)
            return
        if call is not None and view.prompt is not None:
            self.memory = self.memory.again(view.prompt.digest)
        if not turn.is_model:  # a reply without sampled ids: the next prompt must be rendered from scratch
            self.history, self.said = (*view.messages, Message("assistant", turn.text)), None
            return
        view = followed(self, view, turn)
        self.said = self._said(view, turn.last)
        self.history = (*view.messages, Message("assistant", self.said.reply))
        self.parent = turn.id

    def fork(self) -> ModelAgent:
        """A shallow copy of the same class. That is enough, because all its values are immutable or shared. `copy.copy`
        would be slower."""
        return type(self)(*_values(self))


_values = attrgetter(*(f.name for f in fields(ModelAgent)))

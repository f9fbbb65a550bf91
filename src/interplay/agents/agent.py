"""Who sits in a role for the length of one episode.

`ModelAgent` keeps its role's conversation with its ids; `look` makes the prompt, `sample` draws a reply without
remembering it (so that K candidates can be drawn), `commit` makes one reply part of the history. `BotAgent` has
the same face, and so has `Relay`, where a role's turns are taken by different ones. A turn's keys are stamped here, at
the moment it is sampled.

Where the observation has tools, a reply that calls one is not yet the action: the tool's output goes into the next
prompt and the model is asked again, until it answers or has no calls left. Those calls become `Turn.calls`. A call
that cannot be read is answered with what is wrong with it.
"""

from __future__ import annotations

import copy
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from interplay.agents.bots import Bot
from interplay.agents.render import Prompt, Renderer, Said
from interplay.agents.syntax import Malformed, Wanted
from interplay.agents.toolbox import toolbox
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.envs import Env
from interplay.errors import ConfigError
from interplay.types import Keys, Message, Observation, Role, Status, Stop, Task, Turn, seed_of

MALFORMED = "?"  # in the key `tool`: a call that could not be read
LAST = "\n(no calls left: answer now)"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Where in the run a turn is sampled: all its randomness and its keys derive from this."""

    seed: int
    task: Task
    replica: int
    episode: str
    decision: int
    path: tuple[int, ...] = ()  # (decision, role where several act, candidate, playout) of the fork this line plays out
    candidate: int = 0
    state: str = ""  # Env.state() at this decision, where it is recorded

    @property
    def playout(self) -> int | None:
        return self.path[-1] if self.path else None


@dataclass(frozen=True, slots=True)
class View:
    """What an agent is about to answer."""

    observation: Observation
    prompt: Prompt | None = None
    messages: tuple[Message, ...] = ()


class Player(Protocol):
    """Who sits in a role for one line of play."""

    policy: str
    parent: str | None  # its role's turn before

    @property
    def trainable(self) -> bool: ...

    def look(self, observation: Observation) -> View: ...
    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn: ...
    def commit(self, view: View, turn: Turn) -> None: ...


@runtime_checkable
class Agent(Player, Protocol):
    """A player that can be copied as it stands: trees play on from the copies."""

    def fork(self) -> Agent: ...


class Caller(Player, Protocol):
    """An agent that may call tools before it acts."""

    role: Role
    sampling: Sampling
    tools: ToolSection
    budget: int | None

    async def generate(
        self, view: View, stamp: Stamp, sampling: Sampling, parent: str | None, call: int, new: tuple[Message, ...]
    ) -> Turn:
        """One model call; `new` is what its prompt adds to that of the call before."""
        ...

    def wanted(self, view: View, turn: Turn) -> Wanted:
        """The calls that a reply makes."""
        ...

    def harmless(self, output: str) -> str:
        """A tool's output as it may stand in the prompt."""
        ...

    def follow(self, view: View, turn: Turn, outputs: tuple[Message, ...]) -> View:
        """What the model sees after its call `turn` was answered."""
        ...


async def answered(agent: Caller, view: View, stamp: Stamp) -> Turn:
    """Model calls until one is the action; the others are its `calls`."""
    turn = await agent.generate(view, stamp, agent.sampling, agent.parent, 0, ())
    digest = turn.keys.prompt  # of what the decision answers: the same for all its calls
    calls: tuple[Turn, ...] = ()
    left, spent = agent.tools.calls, turn.sampled
    while left and spent != agent.budget and (wanted := agent.wanted(view, turn)):
        wanted = wanted[:left]
        left -= len(wanted)
        outputs = await _use(agent, wanted, stamp, turn.call, last=not left)
        used = "+".join(sorted({MALFORMED if isinstance(w, Malformed) else w.tool.name for w in wanted}))
        turn.keys = replace(turn.keys, tool=used)
        calls += (turn,)
        view = agent.follow(view, turn, outputs)
        sampling = agent.sampling
        if agent.budget is not None:
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, agent.budget - spent))
        turn = await agent.generate(view, stamp, sampling, turn.id, len(calls), outputs)
        turn.keys = replace(turn.keys, prompt=digest)
        spent += turn.sampled
    if calls:
        turn.calls = calls
        turn.keys = replace(turn.keys, tool="+".join(sorted({t for c in calls for t in c.keys.tool.split("+")})))
    return turn


async def _use(agent: Caller, wanted: Wanted, stamp: Stamp, call: int, last: bool) -> tuple[Message, ...]:
    """What the tools answer, one message for each call."""
    outputs = []
    for n, one in enumerate(wanted):
        if isinstance(one, Malformed):
            outputs.append(f"error: {one.why}")
        else:
            outputs.append(await toolbox().use((*key_of(agent.role, stamp), call, n), one))
    return replies(agent, [cut(text, agent.tools.characters) for text in outputs], last)


def replies(agent: Caller, outputs: Sequence[str], last: bool) -> tuple[Message, ...]:
    """The tools' outputs as the caller is shown them."""
    shown = [agent.harmless(text) for text in outputs]
    if last:
        shown[-1] += LAST
    return tuple(Message("tool", text) for text in shown)


def key_of(role: Role, stamp: Stamp, call: int = 0) -> tuple[object, ...]:
    key = (stamp.seed, stamp.task.id, stamp.replica, stamp.path, stamp.decision, role, stamp.candidate)
    return (*key, call) if call else key


def forkable(players: Mapping[Role, Player]) -> dict[Role, Agent]:
    out = {role: player for role, player in players.items() if isinstance(player, Agent)}
    if missing := next((role for role in players if role not in out), None):
        raise ConfigError(
            f"{players[missing].policy} in role {missing} plays one line and cannot be copied, but a tree of "
            "candidates plays on from copies; expected a plan of independent episodes."
        )
    return out


@dataclass(slots=True)
class ModelAgent:
    role: Role
    policy: str
    trainable: bool
    engine: Engine
    renderer: Renderer
    sampling: Sampling
    adapter: str | None = None  # of the engine's base; None is the model as it is
    legal: bool = False  # where legal actions are listed, nothing else can be said
    tools: ToolSection = field(default_factory=ToolSection)
    budget: int | None = None  # tokens for all model calls of one decision together
    history: tuple[Message, ...] = ()
    said: Said | None = None
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        if not self.tools.calls and observation.tools:
            observation = replace(observation, tools=())
        if any(m.images for m in observation.messages):
            observation = replace(observation, messages=tuple(m.words for m in observation.messages))
        keep = not observation.fresh
        messages = (self.history if keep else ()) + observation.messages
        prompt = self.renderer.prompt(messages, self.said if keep else None, observation.tools)
        return View(observation, prompt, messages)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        assert view.prompt is not None
        return await answered(self, view, stamp)

    async def generate(
        self, view: View, stamp: Stamp, sampling: Sampling, parent: str | None, call: int, new: tuple[Message, ...]
    ) -> Turn:
        prompt = view.prompt
        assert prompt is not None
        key = key_of(self.role, stamp, call)
        masked = self.renderer.replies(view.observation.legal) if self.legal else ()
        began = time.monotonic()
        request = Request(key, prompt.ids, seed_of(*key), sampling, self.adapter, masked)
        completion = await self.engine.generate(request)
        text, _ = self.renderer.decode(completion.tokens)
        turn = blank(self.role, self.policy, view.observation, stamp, prompt.digest, text, parent)
        if call:
            turn.id, turn.call, turn.messages = f"{turn.id}.{call}", call, new
        turn.version, turn.prompt, turn.merged = completion.version, prompt.ids, prompt.merged
        turn.action, turn.logprobs = completion.tokens, completion.logprobs
        turn.temperature, turn.masked = sampling.temperature, masked
        turn.status = Status.LENGTH if completion.stop is Stop.LENGTH else Status.OK
        turn.seconds = time.monotonic() - began
        return turn

    def wanted(self, view: View, turn: Turn) -> Wanted:
        tools = view.observation.tools
        return self.renderer.syntax.calls(turn.text, tools) if tools and not turn.masked else []

    def harmless(self, output: str) -> str:
        return self.renderer.harmless(output)

    def follow(self, view: View, turn: Turn, outputs: tuple[Message, ...]) -> View:
        assert view.prompt is not None
        reply, ended = self.renderer.decode(turn.action)
        messages = (*view.messages, Message("assistant", reply), *outputs)
        said = Said(view.prompt, turn.action, reply, ended)
        return View(view.observation, self.renderer.prompt(messages, said, view.observation.tools), messages)

    def commit(self, view: View, turn: Turn) -> None:
        if not turn.action:  # words that were put into its mouth: the next prompt is rendered anew
            self.history, self.said = (*view.messages, Message("assistant", turn.text)), None
            return
        for call, after in itertools.pairwise(turn.whole):
            view = self.follow(view, call, after.messages)
        assert view.prompt is not None
        reply, ended = self.renderer.decode(turn.action)
        self.history = (*view.messages, Message("assistant", reply))
        self.said = Said(view.prompt, turn.action, reply, ended)
        self.parent = turn.id

    def fork(self) -> ModelAgent:
        return copy.copy(self)  # its state is immutable values


@dataclass(slots=True)
class BotAgent:
    role: Role
    policy: str
    bot: Bot
    trainable: bool = False
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        return View(observation)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        text = self.bot.act(env, self.role, random.Random(seed_of(*key_of(self.role, stamp))))
        return blank(self.role, self.policy, view.observation, stamp, "", text, self.parent)

    def commit(self, view: View, turn: Turn) -> None:
        self.parent = turn.id

    def fork(self) -> BotAgent:
        return copy.copy(self)


@dataclass(slots=True)
class Relay:
    """Several who take a role's turns one after another, as one player with one memory: `agents[n]` takes turn n + 1,
    and the last one, with `always`, those that follow."""

    role: Role
    policy: str  # all of them, in words
    agents: tuple[Agent, ...]
    always: bool
    turn: int = 0
    parent: str | None = None

    @property
    def now(self) -> Agent:
        if self.turn >= len(self.agents) and not self.always:
            raise ConfigError(
                f"role {self.role} has a turn {self.turn + 1}, and nobody sits there; expected seats.{self.role} for "
                f"the turns that are not named, or {self.role}@{self.turn + 1}."
            )
        return self.agents[min(self.turn, len(self.agents) - 1)]

    @property
    def trainable(self) -> bool:
        return self.now.trainable

    def look(self, observation: Observation) -> View:
        return self.now.look(observation)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        return await self.now.sample(env, view, stamp)

    def commit(self, view: View, turn: Turn) -> None:
        speaker = self.now
        for agent in {id(a): a for a in self.agents}.values():
            if agent is not speaker:
                _overhear(agent, view, turn)
        speaker.commit(view, turn)
        for agent in self.agents:
            if isinstance(agent, ModelAgent) and isinstance(speaker, ModelAgent) and agent.renderer is speaker.renderer:
                agent.history, agent.said = speaker.history, speaker.said  # token for token: nothing is rendered anew
            agent.parent = turn.id
        self.turn, self.parent = self.turn + 1, turn.id

    def fork(self) -> Relay:
        copies = {id(a): a.fork() for a in self.agents}
        return replace(self, agents=tuple(copies[id(a)] for a in self.agents))


def _overhear(agent: Agent, view: View, turn: Turn) -> None:
    """The role said this with another's mouth."""
    if isinstance(agent, ModelAgent):
        before = () if view.observation.fresh else agent.history
        agent.history = (*before, *view.observation.messages, Message("assistant", turn.text))
        agent.said = None


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}\n… ({len(text) - limit:,} more characters)"


def blank(
    role: Role, policy: str, observation: Observation, stamp: Stamp, digest: str, text: str, parent: str | None
) -> Turn:
    keys = Keys(
        stamp.task.id, stamp.replica, stamp.episode, stamp.decision, role, observation.phase, tool="", prompt=digest
    )
    path = "".join(f".{p}" for p in stamp.path)
    return Turn(
        id=f"{stamp.episode}{path}/{stamp.decision}{role}{stamp.candidate}",
        parent=parent,
        role=role,
        decision=stamp.decision,
        keys=keys,
        policy=policy,
        version=0,
        prompt=(),
        action=(),
        logprobs=(),
        text=text,
        candidate=stamp.candidate,
        playout=stamp.playout,
        messages=observation.messages,
        fresh=observation.fresh,
        legal=observation.legal,
        state=stamp.state,
    )

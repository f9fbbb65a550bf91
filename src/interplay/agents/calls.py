"""Calls a model until its reply is an action.

If the observation has tools, a reply that calls one is not yet the action: the tool's output goes into the next prompt,
and the model is called again until it answers or has no tool calls left. Every model call is a sample of the same turn.
A tool call that cannot be parsed gets an answer that says what is wrong with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from interplay.agents.arguments import Malformed
from interplay.agents.player import Player, Stamp, View, turn_of
from interplay.agents.syntax import Wanted
from interplay.agents.toolbox import toolbox
from interplay.config import ToolSection
from interplay.engines.engine import Engine, Sampling
from interplay.types import Message, Pictured, Role, Sample, Status, Stop, Turn

MALFORMED = "?"  # stands in a sample's `tool` for a call that could not be parsed
LAST = "\n(no calls left: answer now)"


@dataclass(frozen=True, slots=True)
class Asked:
    """One model call: its sampling settings, its number among the calls of the decision, and the messages that its
    prompt adds to that of the previous call."""

    sampling: Sampling
    call: int = 0
    new: tuple[Message, ...] = ()


class Caller(Player, Protocol):
    """A player that may call tools before it acts."""

    role: Role
    engine: Engine
    sampling: Sampling
    tools: ToolSection
    budget: int | None  # tokens for all model calls of one decision together

    async def generate(self, view: View, stamp: Stamp, asked: Asked) -> tuple[Sample, Stop]:
        """One model call."""
        ...

    def wanted(self, view: View, sample: Sample) -> Wanted:
        """The tool calls in a reply."""
        ...

    def harmless(self, output: str) -> str:
        """A tool's output, made safe to put into the prompt."""
        ...

    def follow(self, view: View, sample: Sample, outputs: tuple[Message, ...]) -> View:
        """What the model sees after the tool calls in `sample` were answered."""
        ...


async def answered(agent: Caller, view: View, stamp: Stamp) -> Turn:
    """Let the agent take its turn: any tool calls first, then the action."""
    first, observation = view, view.observation
    sample, stop = await agent.generate(view, stamp, Asked(agent.sampling, 0, observation.messages))
    samples: tuple[Sample, ...] = ()
    left, spent = agent.tools.calls, sample.size
    while left and spent != agent.budget and (wanted := agent.wanted(view, sample)):
        wanted = wanted[:left]
        left -= len(wanted)
        outputs = await _use(agent, wanted, stamp, len(samples), last=not left)
        used = sorted({MALFORMED if isinstance(w, Malformed) else w.tool.name for w in wanted})
        sample = replace(sample, tool="+".join(used))
        samples += (sample,)
        view = agent.follow(view, sample, outputs)
        sampling = agent.sampling
        if agent.budget is not None:
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, agent.budget - spent))
        sample, stop = await agent.generate(view, stamp, Asked(sampling, len(samples), outputs))
        spent += sample.size
    digest = first.prompt.digest if first.prompt else ""
    turn = turn_of(stamp, agent.role, agent, observation, (*samples, sample), digest)
    turn.status = Status.LENGTH if stop is Stop.LENGTH else Status.OK
    return turn


def followed(agent: Caller, view: View, turn: Turn) -> View:
    """What the model saw when it gave its action, after all its tool calls."""
    for call, after in itertools.pairwise(turn.samples):
        view = agent.follow(view, call, after.messages)
    return view


async def _use(agent: Caller, wanted: Wanted, stamp: Stamp, call: int, last: bool) -> tuple[Message, ...]:
    """Run the tool calls and return one message for each."""
    outputs = []
    for n, one in enumerate(wanted):
        if isinstance(one, Malformed):
            outputs.append(f"error: {one.why}")
        else:
            box = toolbox(agent.tools.workers)
            outputs.append(await box.use((*stamp.key(agent.role), call, n), one))
    return replies(agent, [cut(text, agent.tools.characters) for text in outputs], last)


def replies(agent: Caller, outputs: Sequence[str], last: bool) -> tuple[Message, ...]:
    """The tools' outputs as messages to the caller, with the kinds of media that it takes; `last` adds that no calls
    are left."""
    shown = [agent.harmless(text) for text in outputs]
    if last:
        shown[-1] += LAST
    media = [output.media if isinstance(output, Pictured) else () for output in outputs]
    kinds = agent.engine.capabilities.media
    return tuple(Message("tool", text, media=m).only(kinds) for text, m in zip(shown, media, strict=True))


def cut(text: str, limit: int) -> str:
    """The text, or its first `limit` characters and how many follow. Media stay with it."""
    if len(text) <= limit:
        return text
    short = f"{text[:limit]}\n… ({len(text) - limit:,} more characters)"
    return Pictured(short, text.media) if isinstance(text, Pictured) else short

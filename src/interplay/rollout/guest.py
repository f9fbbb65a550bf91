"""A person plays one role of a game; agents play the others.

In an outside program, a person calls a tool of the program with a line `@NAME argument`, as a remote model does. The
program runs the tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from interplay.agents.arguments import Malformed
from interplay.agents.calls import cut
from interplay.agents.joined import with_vectors
from interplay.agents.memory import spoken_in, written
from interplay.agents.player import Agent, Stamp
from interplay.agents.syntax import Plain, describe
from interplay.config import ToolSection
from interplay.envs import Env
from interplay.types import Keys, Message, Observation, Occupant, Rewards, Role, Turn

PERSON = "person"
_SYNTAX = Plain()


@dataclass
class Guest:
    """What a game asks and tells a person. `reply` returns None if the person leaves."""

    reply: Callable[[Observation], Awaitable[str | None]]
    heard: Callable[[Role, str], None]  # another role's action
    rewarded: Callable[[Rewards], None]


class PersonsTools:
    """The tools that a person may call before a move, with a line `@NAME argument`, and how many times more."""

    def __init__(self, observation: Observation, limits: ToolSection) -> None:
        self.tools, self.characters = observation.tools, limits.characters
        self.left = limits.calls if self.tools else 0

    @property
    def told(self) -> str:
        """How to call them; empty if there are none."""
        return describe(self.tools) if self.left else ""

    def outputs(self, reply: str) -> list[str]:
        """Run the calls in a reply. The list is empty if the reply is the move itself."""
        calls = _SYNTAX.calls(reply, self.tools) if self.left else []
        self.left -= bool(calls)
        done = [f"error: {c.why}" if isinstance(c, Malformed) else c.tool.run(**c.arguments) for c in calls]
        return [cut(text, self.characters) for text in done]


@dataclass
class GuestGame:
    env: Env
    person: Role
    others: dict[Role, Occupant]
    agents: dict[Role, Agent]
    guest: Guest
    decisions: int = field(default=0, init=False)

    async def play(self, seed: int) -> bool:
        """Play to the end. Returns False if the person left earlier."""
        while True:
            await self.env.settle()
            seen = self.env.observe()
            if not seen:
                return True
            turns: dict[Role, Turn] = {}
            for role, observation in seen.items():
                stamp = Stamp(seed, self.env.task, 0, "play", self.decisions)
                if role == self.person:
                    reply = await self.guest.reply(_shown(observation))
                    if reply is None:
                        return False
                    turns[role] = _turn(stamp, role, observation, reply)
                else:
                    agent = self.agents[role]
                    view = agent.look(with_vectors(self.agents, role, observation))
                    turns[role] = await agent.sample(self.env, view, stamp)
                    agent.commit(view, turns[role])
            for role in self.others:
                if role in turns:
                    self.guest.heard(role, turns[role].text)
            self.guest.rewarded(self.env.act(turns))
            self.decisions += 1

    async def outcome(self) -> Rewards:
        found = self.env.outcome()
        return found if isinstance(found, Rewards) else await found


def _shown(observation: Observation) -> Observation:
    """What a person sees of the call of an outside program: its tools are described, and the only replies that it takes
    are legal actions."""
    call = observation.call
    if call is None:
        return observation
    messages = tuple(replace(m, content=written(_SYNTAX, m), tool_calls=()) for m in observation.messages)
    told = _SYNTAX.chat(messages, call.tools)
    shown = tuple(replace(m, content=str(words["content"])) for m, words in zip(messages, told, strict=True))
    only = (written(_SYNTAX, Message("assistant", s.content, tool_calls=s.calls)) for s in call.only)
    return replace(observation, messages=shown, legal=tuple(only))


def _turn(stamp: Stamp, role: Role, observation: Observation, text: str) -> Turn:
    keys = Keys(stamp.task.id, stamp.replica, stamp.episode, stamp.decision, role, observation.phase, "", "")
    name, call = stamp.turn_id(role), observation.call
    spoken = None if call is None else spoken_in(_SYNTAX, text, call, name)
    return Turn(name, None, keys, PERSON, text, observation, spoken=spoken)

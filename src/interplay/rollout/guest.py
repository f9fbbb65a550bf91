"""A person plays one role of a game; agents play the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from interplay.agents.joined import with_vectors
from interplay.agents.player import Agent, Stamp
from interplay.envs import Env
from interplay.types import Observation, Occupant, Rewards, Role


@dataclass
class Guest:
    """What a game asks and tells a person. `reply` returns None if the person leaves."""

    reply: Callable[[Observation], Awaitable[str | None]]
    heard: Callable[[Role, str], None]  # another role's action
    rewarded: Callable[[Rewards], None]


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
        while seen := self.env.observe():
            actions: dict[Role, str] = {}
            for role, observation in seen.items():
                if role == self.person:
                    reply = await self.guest.reply(observation)
                    if reply is None:
                        return False
                    actions[role] = reply
                else:
                    agent = self.agents[role]
                    view = agent.look(with_vectors(self.agents, role, observation))
                    turn = await agent.sample(self.env, view, Stamp(seed, self.env.task, 0, "play", self.decisions))
                    agent.commit(view, turn)
                    actions[role] = turn.text
            for role in self.others:
                if role in actions:
                    self.guest.heard(role, actions[role])
            self.guest.rewarded(self.env.step(actions))
            self.decisions += 1
        return True

    async def outcome(self) -> Rewards:
        found = self.env.outcome()
        return found if isinstance(found, Rewards) else await found

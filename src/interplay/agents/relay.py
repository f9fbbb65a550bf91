"""Several players who take a role's turns one after another. Together they act as one player with one history."""

from __future__ import annotations

from dataclasses import dataclass, replace

from interplay.agents.model import ModelAgent
from interplay.agents.player import Agent, Stamp, View
from interplay.envs import Env
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Role, Turn


@dataclass(slots=True)
class Relay:
    """`agents[n]` takes turn n + 1. With `always`, the last agent also takes all later turns."""

    role: Role
    policy: str  # the text that names all of them
    agents: tuple[Agent, ...]
    always: bool
    turn: int = 0
    parent: str | None = None

    @property
    def now(self) -> Agent:
        if self.turn >= len(self.agents) and not self.always:
            raise ConfigError(
                f"role {self.role} has a turn {self.turn + 1}, but no player is named for it; expected "
                f"seats.{self.role} for all other turns, or {self.role}@{self.turn + 1}."
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
                agent.history, agent.said = speaker.history, speaker.said  # with its token ids: no re-rendering
                agent.memory = speaker.memory
            agent.parent = turn.id
        self.turn, self.parent = self.turn + 1, turn.id

    def fork(self) -> Relay:
        copies = {id(a): a.fork() for a in self.agents}
        return replace(self, agents=tuple(copies[id(a)] for a in self.agents))


def _overhear(agent: Agent, view: View, turn: Turn) -> None:
    """Add a turn that another player of this role took to this agent's history."""
    if isinstance(agent, ModelAgent):
        before = () if view.observation.fresh else agent.history
        agent.history = (*before, *view.observation.messages, Message("assistant", turn.text))
        agent.said = None

"""A bot that plays a role. It reads the environment directly and is never trained."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

from interplay.agents.bots import Bot
from interplay.agents.player import Stamp, View, turn_of
from interplay.envs import Env
from interplay.types import Observation, Role, Turn, seed_of


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
        text = self.bot.act(env, self.role, random.Random(seed_of(*stamp.key(self.role))))
        return turn_of(stamp, self.role, self, view.observation, text)

    def commit(self, view: View, turn: Turn) -> None:
        self.parent = turn.id

    def fork(self) -> BotAgent:
        return copy.copy(self)

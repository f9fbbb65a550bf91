"""A bot that plays a role. It reads the environment directly and is never trained."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    asked: Mapping[str, int] = field(default_factory=dict)  # for outside programs: how often each prompt was asked

    def look(self, observation: Observation) -> View:
        return View(observation)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        if view.observation.call is not None:
            digest = hashlib.blake2b(repr(view.observation.messages).encode(), digest_size=8).hexdigest()
            stamp = replace(stamp, asked=(digest, self.asked.get(digest, 0)))
        text = self.bot.act(env, self.role, random.Random(seed_of(*stamp.key(self.role))))
        return turn_of(stamp, self.role, self, view.observation, text, "" if stamp.asked is None else stamp.asked[0])

    def commit(self, view: View, turn: Turn) -> None:
        if digest := turn.keys.prompt:
            self.asked = {**self.asked, digest: self.asked.get(digest, 0) + 1}
        self.parent = turn.id

    def fork(self) -> BotAgent:
        return type(self)(self.role, self.policy, self.bot, self.trainable, self.parent, self.asked)

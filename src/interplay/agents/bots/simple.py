"""Bots for any game that lists its legal actions."""

from __future__ import annotations

import random
from collections.abc import Mapping

from interplay.agents.bots.bot import Bot, legal_actions, register_bot
from interplay.envs.env import Env, outcome_of
from interplay.errors import ConfigError, did_you_mean
from interplay.types import Role


@register_bot("random")
class RandomBot(Bot):
    """Uniform over the legal actions."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        return rng.choice(legal_actions(env, role))

    def odds(self, env: Env, role: Role) -> Mapping[str, float]:
        legal = legal_actions(env, role)
        return dict.fromkeys(legal, 1 / len(legal))


@register_bot("first")
class FirstBot(Bot):
    """Always the first legal action."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        return legal_actions(env, role)[0]

    def odds(self, env: Env, role: Role) -> Mapping[str, float]:
        return {legal_actions(env, role)[0]: 1.0}


@register_bot("always")
class AlwaysBot(Bot):
    """Takes the same action every time, if it is legal; `always:paper`."""

    takes = "an action"

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        if not setting:
            raise ConfigError("bot 'always' needs an action after a colon; expected for example always:paper.")
        self.action = setting

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        legal = legal_actions(env, role)
        return self.action if self.action in legal else legal[0]

    def suits(self, env: Env) -> None:
        for role in env.observe():
            legal = legal_actions(env, role)
            if self.action not in legal:
                self.refuse(f"has no action '{self.action}' at first; {did_you_mean(self.action, legal)}".rstrip("."))


@register_bot("greedy")
class GreedyBot(Bot):
    """Takes the action that earns most at once, looking one move ahead. Ties are broken at random.

    It uses no hidden information: what is hidden from its role, and what others do at the same time, is drawn at random
    `SAMPLES` times.
    """

    SAMPLES = 8

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        legal = legal_actions(env, role)
        total = dict.fromkeys(legal, 0.0)
        for _ in range(self.SAMPLES):
            world = env.redeal(role, rng)
            others = {r: rng.choice(o.legal or ("",)) for r, o in world.observe().items() if r != role}
            for action in legal:
                after = world.fork()
                rewards = after.step({**others, role: action})
                if not after.observe():
                    rewards += outcome_of(after)
                total[action] += sum(r.value or 0.0 for r in rewards.of(role))
        best = max(total.values())
        return rng.choice([action for action, value in total.items() if value >= best - 1e-9])

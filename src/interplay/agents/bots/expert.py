"""The bot that plays every task over a data set, in any role, from the task's own script."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from interplay.agents.bots.bot import Bot, register_bot
from interplay.envs.env import Env
from interplay.envs.tasks.data import DataEnv
from interplay.errors import ConfigError, EnvError
from interplay.types import Role


@register_bot("expert")
class ExpertBot(Bot):
    """Says what solves a task over a data set (math, language, code): the task's own script, read from its row."""

    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        if not isinstance(env, DataEnv):
            self.suits(env)
        assert isinstance(env, DataEnv)
        if role not in env.observe():
            raise EnvError(f"a bot was asked to act as '{role}', but '{role}' must not act in '{env.task.env}' now.")
        return env.script(role)

    def calls(self, env: Env, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        return env.script_calls(role) if isinstance(env, DataEnv) else ()

    def suits(self, env: Env) -> None:
        if not isinstance(env, DataEnv):
            raise ConfigError(
                f"bot 'expert' cannot play '{self.env_name}', which is not a task over a data set; expected such a "
                "task."
            )
        env.script(next(iter(env.observe())))

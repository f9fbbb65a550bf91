"""The base class of scripted players, and the registry that finds them by name.

Bots serve as opponents, baselines and teachers. They may read the environment and are never trained. A seat
`bot:minimax` is `make_bot("minimax", env_name)`; `bot:alpha_beta:6` adds a setting. A bot takes all its random numbers
from the `rng` that `act` gets.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

from interplay.envs.env import Env, lookup, seen_now
from interplay.errors import ConfigError, EnvError
from interplay.registry import Registry
from interplay.types import Role


class Bot(ABC):
    """Subclass it, write `act`, and add `@register_bot("name")`. The first line of the docstring is its description."""

    name: ClassVar[str] = "?"  # set by register_bot
    takes: ClassVar[str] = ""  # describes the setting after the colon; empty: the bot takes no setting

    def __init__(self, env_name: str, setting: str = "") -> None:
        self.env_name = env_name
        if setting and not self.takes:
            raise ConfigError(
                f"bot '{self.name}' takes no setting, but its name is followed by ':{setting}'; remove that."
            )

    @abstractmethod
    def act(self, env: Env, role: Role, rng: random.Random) -> str:
        """The action of `role`, which must be a role that acts now. `act` does not change `env`."""

    def calls(self, env: Env, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The tool calls (name and arguments) that the bot would make before it acts. Imitation learns from these."""
        return ()

    def odds(self, env: Env, role: Role) -> Mapping[str, float] | None:
        """The probability of each action, given only what `role` sees; None if the bot cannot compute it."""
        return None

    def suits(self, env: Env) -> None:
        """Raise if this bot cannot play `env`, a fresh environment. By default, that is an environment that lists no
        legal actions. An outside program says only with each call which replies it takes, so it is not checked."""
        for role, observation in seen_now(env).items():
            if observation.call is None:
                legal_actions(env, role)

    def refuse(self, why: str) -> NoReturn:
        """Raise a `ConfigError` of one sentence. `why` says what the environment has or is, and what was expected."""
        raise ConfigError(f"bot '{self.name}' cannot play '{self.env_name}', which {why}; bot 'random' plays anything.")


B = TypeVar("B", bound=type[Bot])
_PLACES = {
    "alpha_beta": "interplay.agents.bots.connect_four",
    "always": "interplay.agents.bots.simple",
    "equilibrium": "interplay.agents.bots.kuhn",
    "expert": "interplay.agents.bots.expert",
    "breaker": "interplay.agents.bots.dialogue",
    "finder": "interplay.agents.bots.dialogue",
    "first": "interplay.agents.bots.simple",
    "greedy": "interplay.agents.bots.simple",
    "haggler": "interplay.agents.bots.dialogue",
    "hanabi": "interplay.agents.bots.hanabi",
    "minimax": "interplay.agents.bots.minimax",
    "random": "interplay.agents.bots.simple",
    "rater": "interplay.agents.bots.dialogue",
    "replay": "interplay.agents.bots.dialogue",
    "solver": "interplay.agents.bots.solver",
    "writer": "interplay.agents.bots.dialogue",
}
BOTS: Registry[Bot] = Registry(Bot, "a bot", places=_PLACES)


def register_bot(name: str) -> Callable[[B], B]:
    """Class decorator that registers the bot under `name`."""

    def add(cls: B) -> B:
        cls.name = name
        return BOTS.register(name)(cls)

    return add


def make_bot(name: str, env_name: str) -> Bot:
    """Make the bot `name`, or `name:setting`, for the environment `env_name`."""
    lookup(env_name)
    plain, _, setting = name.partition(":")
    return BOTS.lookup(plain)(env_name, setting)


def known_bots() -> dict[str, str]:
    """The name of every bot with the first paragraph of its description."""
    texts = {name: (BOTS.lookup(name).__doc__ or "").strip().split("\n\n")[0] for name in BOTS.known()}
    return {name: " ".join(text.split()) for name, text in texts.items()}


def legal_actions(env: Env, role: Role) -> tuple[str, ...]:
    """The legal actions of `role` now. Raises if it is not its turn, or if the environment lists no actions."""
    observation = env.observe().get(role)
    if observation is None:
        raise EnvError(f"a bot was asked to act as '{role}', but '{role}' must not act in '{env.task.env}' now.")
    call = observation.call
    legal = observation.legal or tuple(s.content for s in (call.only if call else ()) if not s.calls)
    if not legal and call is not None:
        raise EnvError(
            f"a call of the program to '{role}' does not list the texts that can answer it, but a bot can only choose "
            f"from a list; expected a list (env.route.{role}.only, or a strict schema), or no bot in this seat. If it "
            'plays in an evaluation, set eval.opponents to a policy or to "team"; the default is bot:random.'
        )
    if not legal:
        raise EnvError(
            f"environment '{env.task.env}' lists no legal actions for '{role}', but a bot can only choose from a list; "
            "expected Observation.legal, or no bot in this seat."
        )
    return legal

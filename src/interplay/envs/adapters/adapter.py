"""Code that all adapters share: `package:game` names, matching replies to legal actions, the step limit, replay.

An adapter is registered under a name that ends in a colon. In a recipe, the game follows the colon. Prefix and options
are checked without the package, which is imported when the first environment is made. An adapter keeps its history:
each decision with what its roles saw. A fork can replay the history. `redeal` replays it with other random outcomes
until it finds one in which the role would have seen the same.
"""

from __future__ import annotations

import difflib
import importlib
import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import Env
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

TRIES = 20  # how many other deals redeal replays before it gives up
SHOWN = 300  # the largest number of legal actions that a prompt lists
A = TypeVar("A", bound="AdaptedEnv")


class AdapterOptions(Section):
    """Options of every adapter."""

    arguments: dict[str, Any] = Field({}, description="arguments of the game, with the names that its package uses")
    max_steps: int = Field(1000, ge=1, description="decisions after which the episode is truncated")
    rules: str = Field("", description="rules at the beginning of every prompt, instead of the rules known here")
    brief: bool = Field(False, description="show only the position, for models that are trained from scratch")


class AdaptedEnv(Env):
    """A subclass shows what is seen now (`look`), plays actions (`play`) and names its package's games."""

    Options = AdapterOptions
    reward_names = ("payoff", "illegal")
    package: ClassVar[str]  # the package that is imported

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.game = game_of(task.env)
        self.history: list[tuple[dict[Role, Observation], dict[Role, str]]] = []
        self.over = False
        self._now: dict[Role, Observation] | None = None

    # -- defined by a subclass ------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def games(cls) -> list[str]:
        """The names that the package knows."""

    def known_rules(self) -> str:
        """The rules of the game in a few sentences, if they are known."""
        return ""

    @abstractmethod
    def look(self) -> dict[Role, Observation]:
        """What `observe` returns. It is called once per position, and never after the end."""

    @abstractmethod
    def play(self, actions: dict[Role, str]) -> Rewards:
        """What `step` does. It sets `over` when the game ends."""

    # -- the contract ---------------------------------------------------------------------------------------------

    def observe(self) -> dict[Role, Observation]:
        if self.over or len(self.history) >= self.task.data["max_steps"]:
            return {}
        if self._now is None:
            self._now = self.look()
        return dict(self._now)

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.history.append((self.observe(), dict(actions)))
        self._now = None
        return self.play(actions)

    def replayed(self: A, seed: int, role: Role | None = None) -> A | None:
        """The same task and actions with random outcomes from `seed`. None as soon as other roles would have to act or,
        if `role` is given, as soon as this role would have seen something else."""
        twin = type(self)(replace(self.task, seed=seed))
        for seen, actions in [*self.history, (self.observe(), {})]:
            now = twin.observe()
            if now.keys() != seen.keys() or (role is not None and now.get(role) != seen.get(role)):
                return None
            if actions:
                twin.step(actions)
        twin.task = self.task
        return twin

    def redeal(self, role: Role, rng: random.Random) -> Env:
        """Replay with other random outcomes from the start, and keep the result if `role` would have seen exactly what
        it saw. If no such deal is found in `TRIES` tries, hidden information stays as it is."""
        for _ in range(max(2, TRIES // (1 + len(self.history) // 10))):  # long games take longer to replay
            if (twin := self.replayed(rng.getrandbits(62), role)) is not None:
                return twin
        return self.fork(rng.getrandbits(62))

    # -- for subclasses -------------------------------------------------------------------------------------------

    @classmethod
    def library(cls, module: str = "") -> ModuleType:
        """The package, or a module of it. If it is missing, the error says what to install."""
        try:
            return importlib.import_module(module or cls.package)
        except ImportError as error:
            missing = (error.name or cls.package).partition(".")[0]
            raise ConfigError(
                f"env.name needs the package '{missing}', which cannot be imported ({error}); install it with pip "
                "install 'interplay[games]'."
            ) from None

    def unknown(self, names: Iterable[str]) -> ConfigError:
        prefix = self.task.env.partition(":")[0]
        near = difflib.get_close_matches(self.game, list(names), n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        return ConfigError(
            f"env.name '{self.task.env}' is not a game of {prefix}; interplay envs {prefix} lists its games.{hint}"
        )

    def prompt(self, role: Role, view: str, legal: Sequence[str], title: str) -> tuple[Message, ...]:
        """A complete prompt: who plays what, how to reply, the position, and the legal actions."""
        if self.task.data["brief"]:
            return (Message("user", view),)
        seat = f" You are {role}." if len(self.roles) > 1 else ""
        how = " Reply with one legal action, exactly as it is written." if legal else ""
        first = f"{self.task.data['rules'] or self.known_rules() or f'Play {title}.'}{seat}{how}"
        more = f" | and {len(legal) - SHOWN} more" if len(legal) > SHOWN else ""
        listed = f"\nLegal actions: {' | '.join(legal[:SHOWN])}{more}" if legal else ""
        return (Message("system", first), Message("user", f"{view.strip()}{listed}"))


def game_of(name: str) -> str:
    """The game after the colon of `package:game`."""
    return name.partition(":")[2]


def written(actions: Sequence[int], write: Callable[[int], str]) -> dict[str, int]:
    """Texts for actions: each on one line, not empty, and all different."""
    out: dict[str, int] = {}
    for action in actions:
        text = " ".join(write(action).split()) or str(action)
        out[f"{text} ({action})" if text in out else text] = action
    return out


def matching(text: str, legal: Iterable[str]) -> str | None:
    """The legal action that a reply names: exactly, or except for case, quotes and a full stop."""
    names = tuple(legal)
    if text in names:
        return text
    plain = _plain(text)
    found = [name for name in names if _plain(name) == plain] if len(text) < 1_000 else []
    return found[0] if len(found) == 1 else None


def _plain(text: str) -> str:
    return " ".join(text.split()).strip("'\"`").removesuffix(".").casefold()

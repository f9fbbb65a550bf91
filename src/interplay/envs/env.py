"""The environment contract, and the registry of environments by name.

An `Env` is single-use: it is made from a `Task`, played to its end and thrown away. `observe()` names the roles that
must act *now*: one role in turn-taking games, several in simultaneous games. `{}` means that the episode is over. The
environment never knows who plays a role. `interplay check NAME` runs the conformance suite on it.
"""

from __future__ import annotations

import asyncio
import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from interplay.config import Section, validate
from interplay.envs.splits import SPLITS
from interplay.errors import ConfigError, did_you_mean
from interplay.registry import Registry
from interplay.types import MediaKind, Observation, Rewards, Role, Task, Turn, seed_of

PENALTY = -0.1  # the usual process reward of an illegal action; some games use a larger one

T = TypeVar("T")


class Options(Section):
    """An environment without options."""


class Env(ABC):
    """Subclass it, set the class attributes, write five methods, and add `@register("name")`.

    All randomness comes from `self.rng`, so that (task, actions) determines the episode.
    """

    Options: ClassVar[type[Section]] = Options
    reward_names: ClassVar[tuple[str, ...]] = ()  # every name that step() and outcome() can give
    version: ClassVar[str] = "1"
    slow: ClassVar[bool] = False  # step() or outcome() waits for programs or files; rollouts run them in a thread
    roles: tuple[Role, ...]

    def __init__(self, task: Task) -> None:
        self.task = task

    @cached_property
    def rng(self) -> random.Random:
        """Made at its first use, because many games need no random numbers."""
        return self.dice(self.task.seed)

    @staticmethod
    def dice(seed: int) -> random.Random:
        """The source of all randomness. `envs/chance.py` replaces it to enumerate all outcomes."""
        return random.Random(seed)

    @abstractmethod
    def observe(self) -> dict[Role, Observation]:
        """The roles that must act now, and what each sees; `{}` when the episode is over."""

    @abstractmethod
    def step(self, actions: dict[Role, str]) -> Rewards:
        """Play one action for each observed role. An illegal action has a defined consequence and adds a process reward
        named `illegal` for its role."""

    def act(self, turns: Mapping[Role, Turn]) -> Rewards:
        """Like `step`, with all data about the replies, for environments that use more than their text."""
        return self.step({role: turn.text for role, turn in turns.items()})

    @abstractmethod
    def outcome(self) -> Rewards | Awaitable[Rewards]:
        """The final rewards. It is called once, when the episode is over or was truncated. It may be `async`."""

    async def settle(self) -> None:  # noqa: B027
        """Awaited before `observe()`, for environments that wait for something outside, such as a program."""

    def settle_now(self) -> None:
        """Wait like `settle`, in code that is not async."""
        if type(self).settle is not Env.settle:
            _run(self.settle())

    @abstractmethod
    def state(self) -> str:
        """The global view, for central critics, solvers and the viewer."""

    def caption(self, role: Role) -> str:
        """What the pictures and sounds that `role` is shown now say, in words; empty if there are none. Imitation can
        train a policy to say this first."""
        return ""

    def optimum(self, role: Role) -> float | None:
        """The most of the component `gold` that `role` can have at the end of this task if the others agree to
        everything; None where it is not computed. Studies report the distance to it."""
        return None

    @property
    def answered(self) -> bool:
        """Whether the end state holds an answer. An episode without an answer has no vote if several episodes are
        combined."""
        return True

    def fork(self, seed: int | None = None) -> Env:
        """An independent copy, with the same random numbers ahead or, if a seed is given, with new ones."""
        rng = random.Random(0 if seed is None else seed)
        if seed is None:
            rng.setstate(self.rng.getstate())
        # A generator's state is 625 numbers, and a task never changes, so neither is deep-copied.
        return copy.deepcopy(self, {id(self.rng): rng, id(self.task): self.task})

    def twin(self) -> Self:
        """A copy that shares every value. This is enough for a fork if no value is changed in place."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def redeal(self, role: Role, rng: random.Random) -> Env:
        """A copy in which everything hidden from `role` is drawn again, consistent with what the role has seen. In
        games of perfect information only the future is hidden. `interplay check` compares the observations."""
        return self.fork(rng.getrandbits(62))

    @classmethod
    def played_by(cls, options: Mapping[str, Any]) -> type[Env]:
        """The class that plays tasks with these options: this class, unless there is one for each kind of team."""
        return cls

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        """The kinds of media without which a player cannot know the state, with these options."""
        return frozenset()

    @classmethod
    def make_task(cls, name: str, split: str, index: int, seed: int, options: Mapping[str, Any]) -> Task:
        """Task number `index` of a split. The seeds of different splits differ in their last two bits."""
        if split not in SPLITS:
            raise ConfigError(f"'{split}' is not a split; {did_you_mean(split, SPLITS)}")
        drawn = seed_of("task", name, split, seed, index)
        return Task(f"{name}-{split}-{seed}-{index}", name, drawn & ~3 | SPLITS.index(split), dict(options))


_PLACES = {
    "blocksworld": "interplay.envs.games.blocksworld",
    "code": "interplay.envs.tasks.code",
    "connect_four": "interplay.envs.games.connect_four",
    "debugging": "interplay.envs.tasks.debugging",
    "eight_queens": "interplay.envs.games.eight_queens",
    "filler": "interplay.envs.dialogue.filler",
    "gymnasium:": "interplay.envs.adapters.gymnasium",
    "hanabi": "interplay.envs.games.hanabi",
    "hardware": "interplay.envs.tasks.hardware",
    "hearing": "interplay.envs.games.hearing",
    "hider_guesser": "interplay.envs.games.hider_guesser",
    "kuhn": "interplay.envs.games.kuhn",
    "leduc": "interplay.envs.games.leduc",
    "math": "interplay.envs.tasks.math.math",
    "matrix": "interplay.envs.games.matrix",
    "negotiation": "interplay.envs.games.negotiation",
    "nli": "interplay.envs.tasks.nli",
    "openspiel:": "interplay.envs.adapters.openspiel",
    "pettingzoo:": "interplay.envs.adapters.pettingzoo",
    "plan_path": "interplay.envs.games.plan_path",
    "preference": "interplay.envs.dialogue.preference",
    "program": "interplay.envs.programs.program",
    "proposer_solver": "interplay.envs.games.proposer_solver",
    "reasoning_gym:": "interplay.envs.adapters.reasoning_gym",
    "search": "interplay.envs.tasks.search",
    "social_deduction": "interplay.envs.games.social_deduction",
    "repair": "interplay.envs.dialogue.repair",
    "retrieval": "interplay.envs.dialogue.retrieval",
    "robotics": "interplay.envs.tasks.robotics",
    "science": "interplay.envs.tasks.science",
    "sokoban": "interplay.envs.games.sokoban",
    "signalling": "interplay.envs.games.signalling",
    "spotter_pilot": "interplay.envs.games.spotter_pilot",
    "sql": "interplay.envs.tasks.sql",
    "sudoku": "interplay.envs.games.sudoku",
    "sums": "interplay.envs.tasks.sums",
    "story": "interplay.envs.dialogue.story",
    "tables": "interplay.envs.tasks.tables",
    "taboo": "interplay.envs.games.taboo",
    "textarena:": "interplay.envs.adapters.textarena",
    "workflow:": "interplay.envs.workflows.machine",
    "tictactoe": "interplay.envs.games.tictactoe",
}
_TOLD = ("program",)
ENVIRONMENTS: Registry[Env] = Registry(Env, "an environment", "env.name", _PLACES, group="interplay.environments")
# A name that ends in a colon belongs to an adapter. It stands for every name with something after the colon, which the
# class finds in `task.env`.
register = ENVIRONMENTS.register


def known() -> list[str]:
    """The names of environments that can be made with their default options, without the adapters."""
    return [name for name in ENVIRONMENTS.known() if not name.endswith(":") and name not in _TOLD]


def outside() -> list[str]:
    """The names of environments that need options, because they must be told what to run."""
    return list(_TOLD)


def prefixes() -> list[str]:
    """The adapters' prefixes, such as `openspiel:`."""
    return [name for name in ENVIRONMENTS.known() if name.endswith(":")]


def lookup(name: str) -> type[Env]:
    """The class behind `name`, or behind its prefix if that belongs to an adapter, as in `openspiel:kuhn_poker`.
    `package.module:Class` works for environments outside Interplay."""
    if name in ENVIRONMENTS.classes and not name.endswith(":"):  # the usual case, several times for each episode
        return ENVIRONMENTS.classes[name]
    prefix, colon, game = name.partition(":")
    if prefix + colon in prefixes():
        if not game:
            raise ConfigError(
                f"env.name '{name}' does not name a game; expected {name}GAME, see interplay envs {prefix}."
            )
        name = prefix + colon

    def hint() -> str:
        return f", or a game after an adapter's name, {did_you_mean(prefix + colon, prefixes())}" if colon else "."

    return ENVIRONMENTS.lookup(name, hint)


def sample_task(name: str, options: Mapping[str, Any], split: str = "train", index: int = 0, seed: int = 0) -> Task:
    """A task of environment `name`. Its options are checked, and missing ones get their defaults."""
    cls = lookup(name)
    full = validate(cls.Options, options, prefix="env").model_dump()
    return cls.make_task(name, split, index, seed, full)


def seen_now(env: Env) -> dict[Role, Observation]:
    """What the roles that must act see, for code that is not async."""
    env.settle_now()
    return env.observe()


def outcome_of(env: Env) -> Rewards:
    """An episode's final rewards, for code that is not async."""
    found = env.outcome()
    if isinstance(found, Rewards):
        return found

    async def awaited() -> Rewards:
        return await found

    return _run(awaited())


def _run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, on an event loop of its own. If this thread runs one already, on another thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def make(task: Task) -> Env:
    return lookup(task.env).played_by(task.data)(task)

"""The base class of puzzles: a planner who speaks, an actor who moves, and one reward for both.

In each turn the planner sees the position and says something. Then the actor, who sees the position and the planner's
words, gives the moves that are executed. `team = "single"` leaves only the actor. A subclass draws a `PuzzleLevel` and
defines how a move is parsed, played and measured. It must keep these rules. Every level can be solved. A level belongs
to one split (its hash decides which), so a test level is never a training level. Everything that changes is an
immutable value, so that a fork is a copy of a dictionary. `measure` depends only on the position, so that the
`progress` of an episode telescopes: undoing and repeating moves earns nothing.
"""

from __future__ import annotations

import json
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env
from interplay.envs.picture import Look, draw
from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of, split_of_task
from interplay.errors import ConfigError
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task, seed_of

WORST = -1.0  # no position counts less, however bad it is; the first position counts at least 0, the last 1
Mine = Callable[[str], bool]  # whether a level with this key belongs to the task's split


class PuzzleOptions(Section):
    """Options of every puzzle."""

    team: Literal["pair", "single"] = Field("pair", description="planner and actor, or the actor alone")
    speech: Literal["free", "action"] = Field(
        "free", description="what the planner says: anything, or a reply the actor could give (else the turn is lost)"
    )
    moves: int = Field(1, ge=1, le=200, description="the most moves that the actor may give in one reply")
    turns: int = Field(
        0, ge=0, le=1000, description="limit of turns; 0: two more than twice what a good solution needs"
    )
    brief: bool = Field(False, description="show only the position, for models that are trained from scratch")


class PictureOptions(PuzzleOptions):
    """Options of puzzles that can be drawn."""

    view: Literal["text", "image", "both"] = Field(
        "text", description="how the position is shown: in words, as a picture, or both"
    )
    cell: int = Field(8, ge=2, le=64, description="pixels of a cell's side in the picture")
    shown: Literal["own", "blank", "other"] = Field(
        "own",
        description="the picture: of this board, grey, or of another board; the last two measure what seeing "
        "contributes",
    )


@dataclass(frozen=True)
class PuzzleLevel:
    """A puzzle as it was drawn: what never changes while it is played."""

    key: str  # identifies the level and decides its split
    moves: int  # of a good solution; the shortest one if it is easy to compute
    difficulty: Mapping[str, float]


class Puzzle(Env):
    reward_names = ("solved", "progress", "illegal", "format")
    rules: ClassVar[str]  # what the puzzle is, for every role
    form: ClassVar[str]  # how one move is written
    looks: ClassVar[Mapping[str, Look]] = {}  # for puzzles that can be drawn: the look of each symbol in `view`
    legend: ClassVar[str] = ""  # what the picture shows
    level: PuzzleLevel

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        data = task.data
        self.roles = ("actor",) if data["team"] == "single" else ("planner", "actor")
        self.level = _level(type(self), task.seed, json.dumps(dict(data), sort_keys=True))
        self.limit: int = data["turns"] or 2 * -(-self.level.moves // data["moves"]) + 2
        self.turn = 0
        self.said: str | None = None  # what the planner said in this turn
        self.refused = False  # whether the last turn ended with a refused reply
        self.begin()
        self.first = self.potential = self.measure()

    # -- defined by a subclass ------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random, data: Mapping[str, Any], mine: Mine) -> PuzzleLevel | None:
        """A level that can be solved and whose key is `mine`; None if this draw gave no such level."""

    @abstractmethod
    def begin(self) -> None:
        """Set up the first position of `self.level`."""

    @abstractmethod
    def view(self) -> str:
        """The current position."""

    @abstractmethod
    def legal_moves(self) -> list[str]:
        """Every move that can be played now."""

    @abstractmethod
    def read(self, text: str) -> list[str] | None:
        """The moves in a reply, written as in `legal_moves`; None if it cannot be parsed."""

    @abstractmethod
    def play(self, move: str) -> bool:
        """Play a parsed move. If it is illegal, change nothing and return False."""

    @abstractmethod
    def measure(self) -> float:
        """The value of the position, 1 when it is solved. It depends only on the position."""

    @property
    @abstractmethod
    def solved(self) -> bool: ...

    # -- the contract ---------------------------------------------------------------------------------------------

    @property
    def difficulty(self) -> Mapping[str, float]:
        return self.level.difficulty

    @property
    def over(self) -> bool:
        return self.turn >= self.limit or self.solved

    @property
    def to_act(self) -> Role:
        return "planner" if self.said is None and len(self.roles) == 2 else "actor"

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        role, data = self.to_act, self.task.data
        listed = data["moves"] == 1 and (role == "actor" or data["speech"] == "action")
        legal = tuple(self.legal_moves()) if listed else ()
        phase = "plan" if role == "planner" else "act"
        words = [] if self._drawn == "image" else [self.view()]
        if data["brief"]:
            asked = ["hint?"] if role == "planner" else [] if self.said is None else [f"hint: {self.said}"]
            return {role: Observation((self._message([*words, *asked]),), True, legal, phase)}
        now = [*words, f"Turn {self.turn + 1} of {self.limit}."]
        if self.refused:
            now.append("The last reply was refused.")
        if self.said is not None:
            now.append(f"The planner says: {self.said}")
        rules = self.rules if self._drawn == "text" else f"{self.rules} {self.legend}"
        messages = (Message("system", f"{rules} {self._duty(role)}"), self._message(now))
        return {role: Observation(messages, True, legal, phase)}

    @property
    def _drawn(self) -> str:
        shown: str = self.task.data.get("view", "text")
        return shown

    def _message(self, lines: list[str]) -> Message:
        if self._drawn == "text":
            return Message("user", "\n".join(lines))
        shown = self.task.data["shown"]
        looks = dict.fromkeys(self.looks, Look((128, 128, 128))) if shown == "blank" else self.looks
        board = self._other if shown == "other" else self.view()
        picture = Media("image", draw(board, looks, self.task.data["cell"]))
        return Message("user", "\n".join(lines), media=(picture,))

    @property
    def _other(self) -> str:
        """The first position of another board of the same split. The two boards are independent."""
        seed = seed_of("other picture", self.task.seed) & ~3 | self.task.seed & 3
        return type(self)(replace(self.task, seed=seed)).view()

    def caption(self, role: Role) -> str:
        return "" if self._drawn == "text" or self.task.data["shown"] != "own" else self.view()

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"image"} if options.get("view") == "image" else ())

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "planner":
            return self._listen(text)
        moves = self._readable(text)
        self.said, self.refused = None, not moves
        self.turn += 1
        for move in moves or ():
            if self.solved:
                break
            if not self.play(move):
                self.refused = True
                break
        rewards = Rewards.team("progress", self._progress())
        if self.refused:
            rewards += Rewards.process("illegal", {role: PENALTY})
        if moves is None:
            rewards += Rewards.agent("format", {role: PENALTY})
        return rewards

    def outcome(self) -> Rewards:
        return Rewards.team("solved", float(self.solved))

    def state(self) -> str:
        if self.over:
            return f"{self.view()}\n{'solved' if self.solved else 'not solved'}"
        said = "" if self.said is None else f"; said: {self.said}"
        return f"{self.view()}\nturn {self.turn + 1} of {self.limit}; {self.to_act} to act{said}"

    def fork(self, seed: int | None = None) -> Puzzle:
        return self.twin()  # all values are immutable, and there is no randomness after the draw

    # -- the turn -------------------------------------------------------------------------------------------------

    def _listen(self, text: str) -> Rewards:
        if self.task.data["speech"] == "action":
            moves = self._readable(text)
            listed = self.task.data["moves"] == 1
            if not moves or (listed and moves[0] not in self.legal_moves()):
                self.turn += 1
                self.refused = True
                rewards = Rewards.team("progress", 0.0) + Rewards.process("illegal", {"planner": PENALTY})
                return rewards if moves else rewards + Rewards.agent("format", {"planner": PENALTY})
            self.said = ", ".join(moves)
            return Rewards()
        self.said = heard(text)
        return Rewards()

    def _readable(self, text: str) -> list[str] | None:
        allowed: int = self.task.data["moves"]
        moves = self.read(text) if len(text) <= 40 * allowed + 100 else None
        return moves if moves and len(moves) <= allowed else None

    def _progress(self) -> float:
        """The share of the whole way that this turn achieved; over a solved episode these add up to 1."""
        before, self.potential = self.potential, max(WORST, self.measure())
        return (self.potential - before) / (1.0 - self.first)

    def _duty(self, role: Role) -> str:
        allowed: int = self.task.data["moves"]
        count = "one move" if allowed == 1 else f"1 to {allowed} moves, separated by commas,"
        if role == "actor":
            return f"Reply with {count} and nothing else. {self.form}"
        if self.task.data["speech"] == "action":
            return f"You are the planner: suggest {count} to the actor, and nothing else. {self.form}"
        return "You are the planner: tell the actor, who moves next, in a few words what to do."


@lru_cache(maxsize=4096)
def _level(cls: type[Puzzle], seed: int, options: str) -> PuzzleLevel:
    """The level of a task. Replicas of a task share it."""
    data, rng, split = json.loads(options), random.Random(seed), split_of_task(seed)
    for _ in range(TRIES):
        if (level := cls.draw(rng, data, lambda key: split_of(key) == split)) is not None:
            return level
    raise ConfigError(
        f"no {cls.__name__} level for the {split} split was found in {TRIES:,} draws with the options {options}; "
        "expected a wider range of difficulty."
    )

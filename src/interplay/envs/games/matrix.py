"""A matrix game: N players move at once, with any payoff table, for one round or several.

Roles         p0, p1, … (as many as the table has players).
Observation   the actions, the payoff table, and the earlier rounds of this episode. Nobody sees a move before all have
              moved, and with `talk` nobody sees a message before all have sent theirs.
Actions       one of the listed words, alone in the reply. With `talk = true` each round begins with a phase `talk`, in
              which every player sends any text to all others, as one line cut to 500 characters. They read it in the
              phase `move` that follows. Messages bind nobody, cost nothing and are never illegal.
Rewards       `payoff` (agent, each round): the table's entry. An illegal reply ends the game: its player gets the
              lowest payoff in the table for every remaining round and `illegal` −1 (process), the others get 0.
Options       `game` names a known table. Or give `actions` (a list of words for each player) and `payoff` (nested
              lists, indexed by each player's action in turn, ending in one payoff per player). `rounds` repeats the
              game; `talk` adds the messages.
Version       1
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.errors import ConfigError, did_you_mean
from interplay.types import Message, Observation, Rewards, Role, Task

PayoffTable = tuple[list[list[str]], Any]
_RPS = [[[0, 0], [-1, 1], [1, -1]], [[1, -1], [0, 0], [-1, 1]], [[-1, 1], [1, -1], [0, 0]]]
GAMES: dict[str, PayoffTable] = {
    "prisoners_dilemma": ([["cooperate", "defect"]] * 2, [[[3, 3], [0, 5]], [[5, 0], [1, 1]]]),
    "stag_hunt": ([["stag", "hare"]] * 2, [[[4, 4], [0, 3]], [[3, 0], [3, 3]]]),
    "matching_pennies": ([["heads", "tails"]] * 2, [[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]]),
    "rock_paper_scissors": ([["rock", "paper", "scissors"]] * 2, _RPS),
}


TALK = 500  # characters of a message that the others get


class Options(Section):
    game: str = Field("prisoners_dilemma", description="name of a known payoff table")
    rounds: int = Field(1, ge=1, description="how often the game is played in an episode")
    talk: bool = Field(False, description="before each round every player sends a message to all others")
    actions: list[list[str]] = Field(
        default_factory=list, description="for each player, a list of words; needs payoff, and replaces game"
    )
    payoff: list[Any] = Field(
        default_factory=list, description="nested lists, indexed by the action of each player, with a payoff per player"
    )

    @model_validator(mode="after")
    def _table_is_whole(self) -> Options:
        if bool(self.actions) != bool(self.payoff):
            raise ConfigError("env.actions and env.payoff belong together; expected both, or neither and env.game.")
        if not self.actions and self.game not in GAMES:
            raise ConfigError(f"env.game is '{self.game}'; {did_you_mean(self.game, GAMES)}")
        for i, words in enumerate(self.actions):
            distinct = {_word(w) for w in words} - {""}
            if not words or len(distinct) < len(words):
                raise ConfigError(f"env.actions of p{i} is {words}; expected words that differ, ignoring case.")
        for joint in itertools.product(*(range(len(a)) for a in self.actions)):
            entry = _entry(self.payoff, joint)
            if not isinstance(entry, list) or len(entry) != len(self.actions) or not all(map(_finite, entry)):
                raise ConfigError(
                    f"env.payoff at {list(joint)} is {entry!r}; expected {len(self.actions)} numbers, one per player."
                )
        return self


def _word(text: str) -> str:
    """An action as it is compared: `Stag.` equals `stag`."""
    return text.strip().strip(".").lower()


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _entry(table: Any, joint: Sequence[int]) -> Any:
    for i in joint:
        if not isinstance(table, list) or i >= len(table):
            return None
        table = table[i]
    return table


@dataclass(frozen=True)
class Rules:
    """A table and everything that follows from it. It is made once, because there are many short episodes."""

    actions: list[list[str]]
    payoff: Any
    roles: tuple[Role, ...]
    known: list[dict[str, int]]  # for each player, the words that it may say
    paid: dict[tuple[str, ...], Rewards]  # by the moves of all players
    lowest: float
    opening: dict[Role, Observation]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(key: str, talk: bool) -> Rules:
        """The rules of a known game by its name, or of actions and payoff in JSON."""
        actions, payoff = GAMES[key] if key in GAMES else json.loads(key)
        roles = tuple(f"p{i}" for i in range(len(actions)))
        known = [{_word(w): k for k, w in enumerate(words)} for words in actions]
        joints = itertools.product(*(range(len(a)) for a in actions))
        table = {tuple(a[k] for a, k in zip(actions, joint, strict=True)): _entry(payoff, joint) for joint in joints}
        paid = {
            moves: Rewards.agent("payoff", {r: float(v) for r, v in zip(roles, pays, strict=True)})
            for moves, pays in table.items()
        }
        rows = "\n".join(f"{' '.join(moves)}: {' '.join(map(str, pays))}" for moves, pays in table.items())
        opening = {
            role: Observation(
                (
                    Message(
                        "system",
                        f"All players move at once. Reply with one word: {' or '.join(words)}."
                        + (" Before each move everybody sends everybody a message, all at once." if talk else "")
                        + f"\nPayoffs ({' '.join(roles)}):\n{rows}",
                    ),
                    Message("user", f"You are {role}. {'Your message?' if talk else 'Your move?'}"),
                ),
                legal=() if talk else tuple(words),
                phase="talk" if talk else "",
            )
            for role, words in zip(roles, actions, strict=True)
        }
        return Rules(actions, payoff, roles, known, paid, float(min(map(min, table.values()))), opening)


@register("matrix")
class Matrix(Env):
    Options = Options
    reward_names = ("payoff", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        data = task.data
        key = json.dumps([data["actions"], data["payoff"]]) if data["actions"] else data["game"]
        self.rules = Rules.of(key, data["talk"])
        self.actions, self.payoff, self.roles = self.rules.actions, self.rules.payoff, self.rules.roles
        self.history: list[tuple[str, ...]] = []
        self.messages: list[tuple[str, ...]] = []  # for each round that has begun, in the order of the roles
        self.over = False

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        if not self.history and not self.messages:
            return dict(self.rules.opening)
        return {role: self._observation(i) for i, role in enumerate(self.roles)}

    @property
    def talking(self) -> bool:
        """Whether messages are expected now instead of moves."""
        return bool(self.task.data["talk"]) and len(self.messages) == len(self.history)

    def _observation(self, i: int) -> Observation:
        legal = () if self.talking else tuple(self.actions[i])
        phase = "" if not self.task.data["talk"] else "talk" if self.talking else "move"
        ask = "Your message?" if self.talking else "Your move?"
        if phase == "move":
            said = [f"{r}: {text or '(nothing)'}" for r, text in zip(self.roles, self.messages[-1], strict=True)]
            return Observation((Message("user", "\n".join([*said, ask])),), legal=legal, phase=phase)
        moves = ", ".join(f"{r} {a}" for r, a in zip(self.roles, self.history[-1], strict=True))
        return Observation((Message("user", f"Last round: {moves}. {ask}"),), legal=legal, phase=phase)

    def step(self, actions: dict[Role, str]) -> Rewards:
        if self.talking:
            # Each message is one line, so that nobody can pretend to be another player.
            self.messages.append(tuple(" ".join(actions[r].split())[:TALK] for r in self.roles))
            return Rewards()
        played = [words.get(_word(actions[r])) for r, words in zip(self.roles, self.rules.known, strict=True)]
        bad = [r for r, k in zip(self.roles, played, strict=True) if k is None]
        if bad:
            self.over = True
            left = self.task.data["rounds"] - len(self.history)  # so that leaving early never pays
            pay = Rewards.agent("payoff", {r: self.rules.lowest * left if r in bad else 0.0 for r in self.roles})
            return Rewards.process("illegal", dict.fromkeys(bad, -1.0)) + pay
        moves = tuple([a[k] for a, k in zip(self.actions, played, strict=True) if k is not None])
        self.history.append(moves)
        self.over = len(self.history) >= self.task.data["rounds"]
        return self.rules.paid[moves]

    def pays(self, moves: tuple[str, ...]) -> list[float]:
        """The payoff of each player for the moves of all players."""
        return [r.value or 0.0 for r in self.rules.paid[moves]]

    def outcome(self) -> Rewards:
        return Rewards()

    def state(self) -> str:
        rounds = "; ".join(" ".join(moves) for moves in self.history)
        now = "over" if self.over else f"round {len(self.history) + 1} of {self.task.data['rounds']}"
        said = "".join(f"\nround {n}: {list(texts)}" for n, texts in enumerate(self.messages, 1))
        return f"{now}; played: {rounds or 'nothing'}{said}"

    def fork(self, seed: int | None = None) -> Matrix:
        twin = self.twin()
        twin.history, twin.messages = self.history.copy(), self.messages.copy()
        return twin  # there is no randomness

"""Tic-tac-toe on an n×n board, k in a row wins. Two players, turn-taking, zero-sum, perfect information.

Roles         X (moves first) and O.
Observation   the board, every cell with its number, taken cells marked # (yours) or @ (theirs). Both seats see the same
              kind of board, so one policy can play either. With `memory = true` the conversation is kept; otherwise
              every prompt is fresh and complete.
Actions       the number of an empty cell, alone in the reply.
Rewards       `win` (agent, at the end): +1 winner, −1 loser, 0 draw. An illegal reply forfeits the game and costs its
              player an additional −1, `illegal` (process).
Version       1
"""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.envs.opening import DESCRIPTION, play_opening
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

ROLES = ("X", "O")
_REPLY = re.compile(r"[^\w-]*([0-9]+)\W*")


class Options(Section):
    size: int = Field(3, ge=2, le=10, description="rows and columns")
    line: int = Field(3, ge=2, le=10, description="how many in a row win")
    brief: bool = Field(False, description="show only the board, without the rules, for models trained from scratch")
    memory: bool = Field(False, description="keep each player's conversation instead of a fresh prompt per move")
    opening: int = Field(0, ge=0, description=DESCRIPTION)

    @model_validator(mode="after")
    def _line_fits(self) -> Options:
        if self.line > self.size:
            raise ConfigError(f"env.line is {self.line}; expected at most env.size ({self.size}).")
        return self


@lru_cache
def _lines(n: int, k: int) -> tuple[tuple[int, ...], ...]:
    """For each cell, the lines through it. A cell is a bit."""
    steps = ((0, 1), (1, 0), (1, 1), (1, -1))
    lines = [
        sum(1 << (r + i * dr) * n + c + i * dc for i in range(k))
        for r in range(n)
        for c in range(n)
        for dr, dc in steps
        if 0 <= r + (k - 1) * dr < n and 0 <= c + (k - 1) * dc < n
    ]
    return tuple(tuple(line for line in lines if line >> cell & 1) for cell in range(n * n))


def _read(text: str) -> int:
    """The cell that a reply names, from 0; −1 if it names none."""
    match = _REPLY.fullmatch(text)
    return int(match[1]) - 1 if match and len(match[1]) < 4 else -1


@lru_cache
def _won(winner: Role | None) -> Rewards:
    return Rewards.agent("win", {r: 0.0 if winner is None else 1.0 if r == winner else -1.0 for r in ROLES})


@lru_cache
def _names(size: int) -> tuple[str, ...]:
    return tuple(str(i + 1) for i in range(size**2))


@lru_cache
def _rules(line: int) -> Message:
    goal = "" if line == 3 else f", {line} in a row wins"
    return Message("system", f"Play tic-tac-toe{goal}: # yours, @ theirs. Reply with a free number.")


@lru_cache(maxsize=1 << 14)  # enough for every position of the small board, seen from both sides and by the viewer
def _grid(size: int, first: int, second: int, marks: str) -> str:
    cells = [
        (marks[0] if first >> i & 1 else marks[1] if second >> i & 1 else "") + name
        for i, name in enumerate(_names(size))
    ]
    return "\n".join([" ".join(cells[r : r + size]) for r in range(0, size**2, size)])


@lru_cache(maxsize=1 << 14)
def _seen(size: int, mine: int, theirs: int, line: int | None, fresh: bool) -> Observation:
    """What the player to move sees; with the rules, if `line` says how many in a row win."""
    grid = Message("user", _grid(size, mine, theirs, "#@"))
    legal = tuple([name for i, name in enumerate(_names(size)) if not (mine | theirs) >> i & 1])
    return Observation((grid,) if line is None else (_rules(line), grid), fresh=fresh, legal=legal)


@register("tictactoe")
class TicTacToe(Env):
    Options = Options
    reward_names = ("win", "illegal")
    roles = ROLES

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.size, self.memory = task.data["size"], task.data["memory"]
        self.lines = _lines(self.size, task.data["line"])
        self.marks = [0, 0]  # by player, as bits
        self.moves = self.began = 0
        self.winner: Role | None = None
        self.over = False
        play_opening(self, task.data.get("opening", 0))  # tasks in older records have no such option
        self.began = self.moves

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        mover = self.moves % 2
        known = self.task.data["brief"] or (self.memory and self.moves >= self.began + 2)
        line = None if known else self.task.data["line"]
        return {self.roles[mover]: _seen(self.size, self.marks[mover], self.marks[1 - mover], line, not self.memory)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        cell, mover = _read(text), self.moves % 2
        if not 0 <= cell < self.size**2 or (self.marks[0] | self.marks[1]) >> cell & 1:
            self.over, self.winner = True, self.roles[1 - mover]
            return Rewards.process("illegal", {role: -1.0})
        mine = self.marks[mover] = self.marks[mover] | 1 << cell
        self.moves += 1
        for line in self.lines[cell]:
            if mine & line == line:
                self.over, self.winner = True, role
        self.over = self.over or self.moves == self.size**2
        return Rewards()

    def outcome(self) -> Rewards:
        return _won(self.winner)

    def state(self) -> str:
        grid = _grid(self.size, *self.marks, "XO")
        if self.over:
            return f"{grid}\n{self.winner or 'nobody'} won"
        return f"{grid}\n{self.roles[self.moves % 2]} to move"

    def fork(self, seed: int | None = None) -> TicTacToe:
        twin = self.twin()
        twin.marks = self.marks.copy()
        return twin  # this game has no randomness, so there is nothing to seed

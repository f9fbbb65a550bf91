"""Tic-tac-toe on an n×n board, k in a row wins. Two players, turn-taking, zero-sum, perfect information.

Roles         X (moves first) and O.
Observation   the board, every cell with its number, taken ones marked # (yours) or @ (theirs): both seats see the
              same kind of board, so one policy can play either. `memory = true` keeps the conversation, otherwise
              every prompt is fresh and complete in itself.
Actions       the number of an empty cell, alone in the reply.
Rewards       `win` (agent, at the end): +1 winner, −1 loser, 0 draw. An illegal reply forfeits the game and
              costs its player a further −1, `illegal` (process).
Version       1
"""

from __future__ import annotations

import re
from functools import lru_cache

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.envs.env import Env, register
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

ROLES = ("X", "O")
_REPLY = re.compile(r"[^\w-]*([0-9]+)\W*")


class Options(Section):
    size: int = Field(3, ge=2, le=10, description="rows and columns")
    line: int = Field(3, ge=2, le=10, description="how many in a row win")
    brief: bool = Field(False, description="show the board alone, without the rules: for models trained from nothing")
    memory: bool = Field(False, description="keep each player's conversation instead of a fresh prompt per move")

    @model_validator(mode="after")
    def _line_fits(self) -> Options:
        if self.line > self.size:
            raise ConfigError(f"env.line is {self.line}; expected at most env.size ({self.size}).")
        return self


@lru_cache
def _lines(n: int, k: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Of each cell, the lines through it."""
    steps = ((0, 1), (1, 0), (1, 1), (1, -1))
    lines = [
        tuple((r + i * dr) * n + c + i * dc for i in range(k))
        for r in range(n)
        for c in range(n)
        for dr, dc in steps
        if 0 <= r + (k - 1) * dr < n and 0 <= c + (k - 1) * dc < n
    ]
    return tuple(tuple(line for line in lines if cell in line) for cell in range(n * n))


def _read(text: str) -> int:
    """The cell that a reply names, from 0; −1 for none."""
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


@lru_cache(maxsize=1 << 14)  # every position of the small board, seen from either side and by the viewer
def _grid(size: int, marks: tuple[str, ...]) -> str:
    cells = [mark + name for mark, name in zip(marks, _names(size), strict=True)]
    return "\n".join([" ".join(cells[r : r + size]) for r in range(0, size * size, size)])


@lru_cache(maxsize=1 << 14)
def _seen(board: tuple[Role | None, ...], me: Role, size: int, rules: Message | None, fresh: bool) -> Observation:
    grid = Message("user", _grid(size, tuple(["" if c is None else "#" if c == me else "@" for c in board])))
    legal = tuple([name for name, cell in zip(_names(size), board, strict=True) if cell is None])
    return Observation((rules, grid) if rules else (grid,), fresh=fresh, legal=legal)


@register("tictactoe")
class TicTacToe(Env):
    Options = Options
    reward_names = ("win", "illegal")
    roles = ROLES

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.size, self.memory = task.data["size"], task.data["memory"]
        self.lines = _lines(self.size, task.data["line"])
        self.board: list[Role | None] = [None] * self.size**2
        self.moves = 0
        self.winner: Role | None = None
        self.over = False

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        role = self.roles[self.moves % 2]
        known = self.task.data["brief"] or (self.memory and self.moves >= 2)
        rules = None if known else _rules(self.task.data["line"])
        return {role: _seen(tuple(self.board), role, self.size, rules, not self.memory)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        cell = _read(text)
        if not 0 <= cell < len(self.board) or self.board[cell] is not None:
            self.over, self.winner = True, self._other(role)
            return Rewards.process("illegal", {role: -1.0})
        self.board[cell] = role
        self.moves += 1
        for line in self.lines[cell]:
            if {self.board[i] for i in line} == {role}:
                self.over, self.winner = True, role
        self.over = self.over or self.moves == len(self.board)
        return Rewards()

    def outcome(self) -> Rewards:
        return _won(self.winner)

    def state(self) -> str:
        grid = _grid(self.size, tuple([cell or "" for cell in self.board]))
        if self.over:
            return f"{grid}\n{self.winner or 'nobody'} won"
        return f"{grid}\n{self.roles[self.moves % 2]} to move"

    def fork(self, seed: int | None = None) -> TicTacToe:
        twin = self.twin()
        twin.board = self.board.copy()
        return twin  # no randomness in this game: there is nothing to reseed

    def _other(self, role: Role) -> Role:
        return self.roles[1 - self.roles.index(role)]

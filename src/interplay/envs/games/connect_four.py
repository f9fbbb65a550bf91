"""Connect Four on any grid: discs fall to the bottom of a column, k in a row wins. Zero-sum, perfect information.

Roles         X (moves first) and O.
Observation   the column numbers above the grid; # yours, @ theirs, . empty. Both seats see the same kind of board, so
              one policy can play either. Every prompt is fresh and complete.
Actions       the number of a column that is not full, alone in the reply.
Rewards       `win` (agent, at the end): +1 winner, −1 loser, 0 draw (the grid is full). An illegal reply forfeits the
              game and costs its player an additional −1, `illegal` (process).
Options       `columns`, `rows`, `line` (how many in a row win), `brief` (the board without the rules), `opening` (up to
              how many random moves training games begin with).
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

_REPLY = re.compile(r"[^\w-]*([0-9]+)\W*")


class Options(Section):
    columns: int = Field(7, ge=1, le=20, description="columns of the grid")
    rows: int = Field(6, ge=1, le=20, description="rows of the grid")
    line: int = Field(4, ge=2, le=20, description="how many in a row win")
    brief: bool = Field(False, description="show only the board, without the rules, for models trained from scratch")
    opening: int = Field(0, ge=0, description=DESCRIPTION)

    @model_validator(mode="after")
    def _line_fits(self) -> Options:
        if self.line > max(self.columns, self.rows):
            raise ConfigError(
                f"env.line is {self.line}; expected at most the longer side of the grid "
                f"({max(self.columns, self.rows)})."
            )
        return self


def connected(discs: int, rows: int, line: int) -> bool:
    """Whether one player's discs contain `line` in a row: vertically, horizontally or diagonally.

    A disc is bit `column * (rows + 1) + row`, row 0 at the bottom. The spare bit above each column prevents wrapping.
    """
    for shift in (1, rows, rows + 1, rows + 2):
        run, length = discs, 1
        while run and length < line:  # after each pass, each bit of `run` begins a row of `length` discs
            grow = min(length, line - length)
            run &= run >> grow * shift
            length += grow
        if run:
            return True
    return False


@lru_cache
def _rules(line: int) -> Message:
    return Message(
        "system",
        f"Play Connect Four: {line} in a row wins, # yours, @ theirs. A disc falls to the lowest place of "
        "its column. Reply with the number of a column that has room.",
    )


@lru_cache
def _numbers(columns: int, width: int) -> str:
    return " ".join(str(c + 1).rjust(width) for c in range(columns))


@register("connect_four")
class ConnectFour(Env):
    Options = Options
    reward_names = ("win", "illegal")
    roles = ("X", "O")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.columns, self.rows, self.line = task.data["columns"], task.data["rows"], task.data["line"]
        self.discs = [0, 0]  # bitboards, by player
        self.heights = [0] * self.columns
        self.moves = 0
        self.winner: Role | None = None
        self.over = False
        play_opening(self, task.data.get("opening", 0))  # tasks in older records have no such option

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        mover = self.moves % 2
        board = Message("user", self._grid("@#" if mover else "#@"))
        legal = tuple([str(c + 1) for c, height in enumerate(self.heights) if height < self.rows])
        if self.task.data["brief"]:
            return {self.roles[mover]: Observation((board,), fresh=True, legal=legal)}
        return {self.roles[mover]: Observation((_rules(self.line), board), fresh=True, legal=legal)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        match = _REPLY.fullmatch(text)
        column = int(match[1]) - 1 if match and len(match[1]) < 4 else -1
        if not 0 <= column < self.columns or self.heights[column] >= self.rows:
            self.over, self.winner = True, self.roles[1 - self.roles.index(role)]
            return Rewards.process("illegal", {role: -1.0})
        mover = self.moves % 2
        self.discs[mover] |= 1 << column * (self.rows + 1) + self.heights[column]
        self.heights[column] += 1
        self.moves += 1
        if connected(self.discs[mover], self.rows, self.line):
            self.over, self.winner = True, role
        elif self.moves == self.columns * self.rows:
            self.over = True
        return Rewards()

    def outcome(self) -> Rewards:
        value = {r: 0.0 if self.winner is None else (1.0 if r == self.winner else -1.0) for r in self.roles}
        return Rewards.agent("win", value)

    def state(self) -> str:
        last = f"{self.winner or 'nobody'} won" if self.over else f"{self.roles[self.moves % 2]} to move"
        return f"{self._grid('XO')}\n{last}"

    def fork(self, seed: int | None = None) -> ConnectFour:
        twin = self.twin()
        twin.discs, twin.heights = self.discs.copy(), self.heights.copy()
        return twin  # this game has no randomness, so there is nothing to seed

    def _grid(self, marks: str) -> str:
        cells = [["."] * self.columns for _ in range(self.rows)]
        first = self.discs[0]
        for c, height in enumerate(self.heights):
            for r in range(height):
                cells[-1 - r][c] = marks[0] if first >> c * (self.rows + 1) + r & 1 else marks[1]
        width = len(str(self.columns))
        if width > 1:
            cells = [[x.rjust(width) for x in row] for row in cells]
        return "\n".join([_numbers(self.columns, width), *map(" ".join, cells)])

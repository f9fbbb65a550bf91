"""Eight Queens (or n): complete a board on which no two queens attack each other. A planner advises an actor.

Rules         some queens are given and stay; the actor adds one to each other row. Queens attack along rows, columns
              and diagonals. The episode ends when there are n queens, or at the turn limit (by default two more than
              twice the number of missing queens). Every board can be completed as it is drawn. After a bad move this
              may be impossible until the move is taken back.
Roles         planner, who speaks first in every turn, and actor, who moves; `team = "single"`: the actor alone.
Observation   the present board: Q a queen that was given, q a queen that was added, . an empty square. The actor also
              sees what the planner said in this turn. Every prompt is fresh and complete.
Actions       actor: `row column` adds a queen, `-row column` takes an added one back, up to `moves` of them,
              separated by commas. It is illegal to add a queen on an attacked square, or to take back a queen that
              was given or is not there. An illegal move and the rest of the reply are not played, and the turn is used
              up. Planner: free text, cut at 400 characters, or with `speech = "action"` a reply that the actor could
              give.
Rewards       `solved` (team, at the end): 1 if there are n queens, else 0. `progress` (team, each turn): the change in
              the number of added queens, as a share of those missing at first; a board that cannot be completed any
              more counts as 0. `illegal` (process): −0.1. `format` (agent): −0.1 more for a reply that cannot be
              parsed.
Difficulty    size, missing queens (size minus `given`).
Version       1
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field, model_validator

from interplay.envs.env import register
from interplay.envs.games.puzzle import Mine, Puzzle, PuzzleLevel, PuzzleOptions
from interplay.errors import ConfigError

NONE = -1
Board = tuple[int, ...]  # for each row, the column of its queen, or NONE
_MOVE = re.compile(r"(-?)\s*([0-9]{1,2})\s+([0-9]{1,2})")


class Options(PuzzleOptions):
    size: int = Field(8, ge=5, le=12, description="rows, columns and queens")
    given: int = Field(3, ge=1, le=11, description="number of queens that are given")

    @model_validator(mode="after")
    def _something_is_missing(self) -> Options:
        if self.given >= self.size:
            raise ConfigError(f"env.given is {self.given}; expected fewer than env.size ({self.size}).")
        return self


def attacked(board: Board, row: int, col: int) -> bool:
    return any(c != NONE and (r == row or c == col or abs(r - row) == abs(c - col)) for r, c in enumerate(board))


def complete(board: Board, rng: random.Random | None = None) -> Board | None:
    """The board with a queen in every row, if possible: backtracking on the row with the fewest free squares."""
    size = len(board)
    queens = list(board)
    columns = rising = falling = 0
    for row, col in enumerate(board):
        if col != NONE:
            columns, rising, falling = columns | 1 << col, rising | 1 << (row + col), falling | 1 << (row - col + size)

    def search(rows: list[int], columns: int, rising: int, falling: int) -> bool:
        if not rows:
            return True
        best: list[int] | None = None
        where = -1
        for row in rows:
            free = [
                col
                for col in range(size)
                if not (columns >> col | rising >> (row + col) | falling >> (row - col + size)) & 1
            ]
            if best is None or len(free) < len(best):
                best, where = free, row
                if not free:
                    return False
        assert best is not None
        if rng is not None:
            rng.shuffle(best)
        rest = [row for row in rows if row != where]
        for col in best:
            queens[where] = col
            if search(rest, columns | 1 << col, rising | 1 << (where + col), falling | 1 << (where - col + size)):
                return True
        return False

    missing = [row for row, col in enumerate(board) if col == NONE]
    if rng is not None:
        rng.shuffle(missing)
    return tuple(queens) if search(missing, columns, rising, falling) else None


completed = lru_cache(maxsize=50_000)(complete)


@dataclass(frozen=True)
class Given(PuzzleLevel):
    board: Board


@register("eight_queens")
class EightQueens(Puzzle):
    Options = Options
    rules = "Add queens until every row has one and no two share a row, column or diagonal. Q were given, q were added."
    form = "A move is row column to add a queen, for example 3 5, or -row column to take back an added one."
    level: Given

    @classmethod
    def draw(cls, rng: random.Random, data: Mapping[str, Any], mine: Mine) -> PuzzleLevel | None:
        size, given = data["size"], data["given"]
        full = complete((NONE,) * size, rng)
        assert full is not None
        rows = set(rng.sample(range(size), given))
        board = tuple(col if row in rows else NONE for row, col in enumerate(full))
        key = " ".join(map(str, board))
        if not mine(key):
            return None
        missing = size - given
        return Given(key, missing, {"size": size, "missing": missing}, board)

    def begin(self) -> None:
        self.board = self.level.board

    def view(self) -> str:
        rows = []
        for given, col in zip(self.level.board, self.board, strict=True):
            row = ["."] * len(self.board)
            if col != NONE:
                row[col] = "q" if given == NONE else "Q"
            rows.append(" ".join(row))
        return "\n".join(rows)

    def legal_moves(self) -> list[str]:
        size = len(self.board)
        columns = set(self.board)
        rising = {r + c for r, c in enumerate(self.board) if c != NONE}
        falling = {r - c for r, c in enumerate(self.board) if c != NONE}
        moves = []
        for row, col in enumerate(self.board):
            if col == NONE:
                moves += [
                    f"{row + 1} {c + 1}"
                    for c in range(size)
                    if c not in columns and row + c not in rising and row - c not in falling
                ]
            elif self.level.board[row] == NONE:
                moves.append(f"-{row + 1} {col + 1}")
        return moves

    def read(self, text: str) -> list[str] | None:
        moves = []
        for part in re.split(r"[,;\n]+", text.strip(" \t\r\n.,;")):
            if not (found := _MOVE.fullmatch(part.strip())):
                return None
            moves.append(f"{found[1]}{int(found[2])} {int(found[3])}")
        return moves

    def play(self, move: str) -> bool:
        row, col = (int(n) - 1 for n in move.lstrip("-").split())
        size = len(self.board)
        if not (0 <= row < size and 0 <= col < size):
            return False
        if move.startswith("-"):
            if self.board[row] != col or self.level.board[row] != NONE:
                return False
            col = NONE
        elif attacked(self.board, row, col):
            return False
        self.board = (*self.board[:row], col, *self.board[row + 1 :])
        return True

    def measure(self) -> float:
        missing = self.board.count(NONE)
        if missing and completed(self.board) is None:
            return 0.0
        return 1.0 - missing / self.level.moves

    @property
    def solved(self) -> bool:
        return NONE not in self.board

    def solution(self) -> list[str]:
        """Take back queens that must go, latest row first, until the board can be completed; then complete it."""
        board, moves = self.board, []
        while (full := completed(board)) is None:
            row = max(r for r, c in enumerate(board) if c != NONE and self.level.board[r] == NONE)
            moves.append(f"-{row + 1} {board[row] + 1}")
            board = (*board[:row], NONE, *board[row + 1 :])
        return moves + [f"{r + 1} {full[r] + 1}" for r, c in enumerate(board) if c == NONE]

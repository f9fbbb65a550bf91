"""Sudoku, 4×4 and 9×9, drawn with one solution or read from a file. A planner advises an actor (as in AT-GRPO).

Rules         every row, column and box contains each number once; the clues stay. The episode ends when the grid is
              right, or at the turn limit (by default two more than twice the number of blanks).
Roles         planner, who speaks first in every turn, and actor, who fills in; `team = "single"`: the actor alone.
Observation   the present grid, 0 for a blank. The actor also sees what the planner said in this turn. Every prompt is
              fresh and complete.
Actions       actor: `row column number`, up to `moves` of them, separated by commas; the number 0 empties a cell that
              the actor filled. It is illegal to change a clue, or to repeat a number in a row, column or box: such a
              move and the rest of the reply are not played, and the turn is used up. A number that is possible but
              wrong is accepted and can be replaced. Planner: free text, cut at 400 characters, or with `speech =
              "action"` a reply that the actor could give.
Rewards       `solved` (team, at the end): 1 if the grid is right, else 0. `progress` (team, each turn): the change in
              right cells, as a share of the blanks. `illegal` (process): −0.1. `format` (agent): −0.1 more for a
              reply that cannot be parsed.
Difficulty    size, blanks.
Files         `file` has one puzzle per line, 16 or 81 characters, . or 0 for a blank; text after a space is ignored. It
              sets the size and blanks. A puzzle that does not have exactly one solution is refused.
Version       1
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.envs.env import register
from interplay.envs.games.level_file import FileOptions, from_file
from interplay.envs.games.puzzle import Mine, Puzzle, PuzzleLevel, PuzzleOptions
from interplay.errors import ConfigError

MOST_BLANKS = {4: 10, 9: 55}  # with more, removing numbers in a random order rarely keeps the solution unique
_MOVE = re.compile(r"r?([0-9])(?:\s+|\s*c)([0-9])(?:\s+|\s*[=:]\s*)([0-9])")


class Options(PuzzleOptions, FileOptions):
    size: Literal[4, 9] = Field(4, description="rows and columns")
    blanks: int = Field(6, ge=1, le=55, description="number of empty cells")

    @model_validator(mode="after")
    def _blanks_fit(self) -> Options:
        if self.blanks > MOST_BLANKS[self.size]:
            raise ConfigError(
                f"env.blanks is {self.blanks}; expected at most {MOST_BLANKS[self.size]} with size {self.size}."
            )
        return self


@cache
def peers(size: int) -> tuple[tuple[int, ...], ...]:
    """For each cell, the cells in its row, column and box."""
    box = 2 if size == 4 else 3
    place = [(i // size, i % size, i // size // box, i % size // box) for i in range(size * size)]
    return tuple(
        tuple(j for j, (r2, c2, a2, b2) in enumerate(place) if j != i and (r == r2 or c == c2 or (a, b) == (a2, b2)))
        for i, (r, c, a, b) in enumerate(place)
    )


@cache
def units(size: int) -> tuple[tuple[int, ...], ...]:
    """The rows, columns and boxes."""
    box = 2 if size == 4 else 3
    cells = range(size * size)
    rows = [[i for i in cells if i // size == n] for n in range(size)]
    columns = [[i for i in cells if i % size == n] for n in range(size)]
    boxes = [[i for i in cells if i // size // box * box + i % size // box == n] for n in range(size)]
    return tuple(map(tuple, rows + columns + boxes))


def solve(grid: Sequence[int], rng: random.Random | None = None) -> Iterator[tuple[int, ...]]:
    """Every completion of `grid` (0 is blank): backtracking on the cell with the fewest candidates.

    A number that fits in only one cell of a row, column or box is put there before anything is tried.
    With `rng` the candidates are tried in random order, so that the first completion of an empty grid is random.
    """
    size = 4 if len(grid) == 16 else 9
    around, parts, full = peers(size), units(size), (1 << size) - 1
    values = list(grid)
    free = [full] * len(grid)
    for i, value in enumerate(values):
        if value:
            if not free[i] >> (value - 1) & 1:
                return
            for j in around[i]:
                free[j] &= ~(1 << (value - 1))
    blanks = {i for i, value in enumerate(values) if not value}

    def search() -> Iterator[tuple[int, ...]]:
        if not blanks:
            yield tuple(values)
            return
        cell, options = _next_cell(values, free, blanks, parts)
        if not options:
            return
        blanks.remove(cell)
        choices = [v for v in range(1, size + 1) if options >> (v - 1) & 1]
        if rng is not None:
            rng.shuffle(choices)
        for value in choices:
            bit = 1 << (value - 1)
            touched = [j for j in around[cell] if free[j] & bit]
            for j in touched:
                free[j] ^= bit
            values[cell] = value
            yield from search()
            for j in touched:
                free[j] |= bit
        values[cell] = 0
        blanks.add(cell)

    yield from search()


def _next_cell(
    values: Sequence[int], free: Sequence[int], blanks: set[int], parts: Sequence[tuple[int, ...]]
) -> tuple[int, int]:
    """The blank to fill next, and the numbers to try there as bits: as few as possible, 0 if nothing fits."""
    cell, fewest = -1, 99
    for i in blanks:
        if (count := free[i].bit_count()) < fewest:
            cell, fewest = i, count
            if count <= 1:
                return cell, free[cell]
    for unit in parts:
        once = twice = 0
        for i in unit:
            if not values[i]:
                twice |= once & free[i]
                once |= free[i]
        if only := once & ~twice:
            option = only & -only
            return next(i for i in unit if not values[i] and free[i] & option), option
    return cell, free[cell]


def only_solution(grid: Sequence[int]) -> tuple[int, ...] | None:
    """The solution of `grid` if it has exactly one."""
    found = solve(grid)
    first = next(found, None)
    return first if first is not None and next(found, None) is None else None


_answer = lru_cache(maxsize=4096)(only_solution)


def blank_out(full: Sequence[int], blanks: int, rng: random.Random) -> tuple[int, ...] | None:
    """`full` with `blanks` cells emptied such that the solution stays unique; None if this order does not work."""
    size = 4 if len(full) == 16 else 9
    around = peers(size)
    grid, left = list(full), blanks
    order = list(range(len(full)))
    rng.shuffle(order)
    for n, cell in enumerate(order):
        if not left:
            break
        if left > len(order) - n:
            return None
        value, grid[cell] = grid[cell], 0
        seen = {grid[j] for j in around[cell]}
        # Another solution would have another number here, because with this cell filled there was only one.
        for other in range(1, size + 1):
            if other != value and other not in seen:
                grid[cell] = other
                if next(solve(grid), None) is not None:
                    grid[cell] = value
                    break
        else:
            grid[cell] = 0
            left -= 1
    return None if left else tuple(grid)


@dataclass(frozen=True)
class Grid(PuzzleLevel):
    size: int
    clues: tuple[int, ...]
    answer: tuple[int, ...]


def read_lines(text: str) -> list[str]:
    """The puzzles of a file with one puzzle per line, blanks as 0."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        puzzle = line.split()[0].replace(".", "0") if line.split() else ""
        if not puzzle or puzzle.startswith("#"):
            continue
        if len(puzzle) not in (16, 81) or not puzzle.isdecimal():
            raise ConfigError(f"line {number} of env.file is '{line[:90]}'; expected 16 or 81 digits or dots.")
        found.append(puzzle)
    return found


@register("sudoku")
class Sudoku(Puzzle):
    Options = Options
    rules = "Fill the grid so that every row, column and box holds each number once. 0 is a blank."
    form = "A move is row column number, for example 1 2 3."
    level: Grid

    @classmethod
    def draw(cls, rng: random.Random, data: Mapping[str, Any], mine: Mine) -> PuzzleLevel | None:
        if data["file"]:
            key = from_file(rng, data, read_lines, mine)
            clues: tuple[int, ...] | None = tuple(map(int, key))
            answer = _answer(clues or ())
            if answer is None:
                raise ConfigError(f"env.file has '{key}', which has no solution or several; expected exactly one.")
            if answer == clues:
                raise ConfigError(f"env.file has '{key}', which is already solved; expected blanks (0 or .).")
        else:
            answer = next(solve([0] * data["size"] ** 2, rng))
            key = "".join(map(str, answer))  # the whole grid, so that no solution is in two splits
            if not mine(key):
                return None
            clues = blank_out(answer, data["blanks"], rng)
        if clues is None:
            return None
        size, blanks = 4 if len(clues) == 16 else 9, clues.count(0)
        return Grid(key, blanks, {"size": size, "blanks": blanks}, size, clues, answer)

    def begin(self) -> None:
        self.grid = self.level.clues
        self.missing = self.level.clues.count(0)  # cells that are blank or wrong

    def view(self) -> str:
        size = self.level.size
        return "\n".join(" ".join(map(str, self.grid[r : r + size])) for r in range(0, len(self.grid), size))

    def legal_moves(self) -> list[str]:
        size, grid, clues, around = self.level.size, self.grid, self.level.clues, peers(self.level.size)
        moves = []
        for i, clue in enumerate(clues):
            if not clue:
                where, seen = f"{i // size + 1} {i % size + 1}", {grid[j] for j in around[i]}
                seen.add(grid[i])  # the number that is there already; 0 for a blank
                moves += [f"{where} {v}" for v in range(size + 1) if v not in seen or (v == 0 != grid[i])]
        return moves

    def read(self, text: str) -> list[str] | None:
        moves = []
        for part in re.split(r"[,;\n]+", text.strip(" \t\r\n.,;").lower()):
            if not (found := _MOVE.fullmatch(part.strip())):
                return None
            moves.append(" ".join(found.groups()))
        return moves

    def play(self, move: str) -> bool:
        size = self.level.size
        row, col, value = map(int, move.split())
        cell = (row - 1) * size + col - 1
        if not (1 <= row <= size and 1 <= col <= size and value <= size) or self.level.clues[cell]:
            return False
        if value == self.grid[cell] or (value and any(self.grid[j] == value for j in peers(size)[cell])):
            return False
        self.missing += (self.grid[cell] == self.level.answer[cell]) - (value == self.level.answer[cell])
        self.grid = (*self.grid[:cell], value, *self.grid[cell + 1 :])
        return True

    def measure(self) -> float:
        return 1.0 - self.missing / self.level.moves

    @property
    def solved(self) -> bool:
        return not self.missing

    def solution(self) -> list[str]:
        """The remaining moves: first remove wrong numbers, which may be in the way, then fill in the right ones."""
        size, answer = self.level.size, self.level.answer
        where = [f"{i // size + 1} {i % size + 1}" for i in range(size * size)]
        wrong = [f"{where[i]} 0" for i, v in enumerate(self.grid) if v and v != answer[i]]
        return wrong + [f"{where[i]} {answer[i]}" for i, v in enumerate(self.grid) if v != answer[i]]

"""Proposer–solver: one role writes a task and the other attempts it. A task that is solved half of the time pays most.

Rules         the proposer writes one task in a strict form, with contents that the seed asks for. A program checks it.
              The solver then gets it `attempts` times; no attempt knows of the others. The program marks every answer.
              A task that is not in the form ends the episode.
Roles         proposer (acts first) and solver.
Observation   proposer: the form and what must be in the task. Solver: only the task, the same in every attempt. Every
              prompt is fresh and complete.
Actions       `kind = "arithmetic"`: the proposer writes an expression of whole numbers up to 999 with + - * // % and
              brackets, with 1 to `most` operators, and with the asked number and operator in it; the solver replies
              with only its value. `kind = "grid"`: the proposer writes `most` rows of `most` cells: # wall, . free, S
              the start and a wall where asked, G the goal, with a way from S to G; the solver replies with moves U, D,
              L, R that lead there, at most four for each cell.
Rewards       `frontier` (agent, proposer, at the end): 1 − |2p − 1|, where p is the share of attempts that succeeded; 0
              for a task that is not in the form. `right` (agent, solver, each attempt): 1 or 0. `illegal` (process):
              −1 for a task that is not in the form, −0.1 for an answer that cannot be parsed. An answer is one number
              or one line of moves: a reply that repeats the task or gives several answers is not an answer.
Difficulty    the proposer decides it; `most` limits it.
Version       1
"""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Mapping
from typing import Literal

from pydantic import Field, model_validator

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.games.grid import DIRECTIONS, distances, neighbours, read_directions
from interplay.envs.splits import TRIES, split_of, split_of_task
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
LARGEST = 999
_EXPRESSION = re.compile(r"[\d+\-*/%() ]{3,200}")
_NUMBER = re.compile(r"(-?[0-9]{1,40})\.?")  # digits of other scripts are no answer


class Options(Section):
    kind: Literal["arithmetic", "grid"] = Field("arithmetic", description="the form of the tasks")
    attempts: int = Field(4, ge=1, le=64, description="how often the solver gets the task")
    most: int = Field(4, ge=1, le=10, description="most operators of an expression; rows and columns of a grid")

    @model_validator(mode="after")
    def _a_grid_has_room(self) -> Options:
        if self.kind == "grid" and self.most < 3:
            raise ConfigError(f"env.most is {self.most}; expected at least 3 for a grid.")
        return self


class Expression:
    """An arithmetic task. `of` returns None unless the text has exactly this form."""

    def __init__(self, text: str, value: int, numbers: set[int], operators: list[str]) -> None:
        self.text, self.value, self.numbers, self.operators = text, value, numbers, operators

    @staticmethod
    def of(text: str) -> Expression | None:
        text = text.strip()
        if not _EXPRESSION.fullmatch(text) or "**" in text:
            return None
        try:
            tree = ast.parse(text, mode="eval").body
            numbers: set[int] = set()
            operators: list[str] = []
            value = _value(tree, numbers, operators)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return None
        return Expression(text, value, numbers, operators) if operators else None


def _value(node: ast.expr, numbers: set[int], operators: list[str]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value <= LARGEST:
        numbers.add(node.value)
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        name, function = OPERATORS[type(node.op)]
        left, right = (_value(side, numbers, operators) for side in (node.left, node.right))
        operators.append(name)
        return function(left, right)
    raise ValueError("not an expression of this game")


@register("proposer_solver")
class ProposerSolver(Env):
    Options = Options
    reward_names = ("frontier", "right", "illegal")
    roles = ("proposer", "solver")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        data = task.data
        self.kind: str = data["kind"]
        self.most: int = data["most"]
        self.number, self.operator, self.start, self.wall = self._draw()
        self.posed: str | None = None
        self.marks: tuple[bool, ...] = ()
        self.malformed = False

    def _draw(self) -> tuple[int, str, int, int]:
        """What the task must contain; different in every split."""
        for _ in range(TRIES):
            number = self.rng.randint(2, LARGEST)
            sign = self.rng.choice([name for name, _ in OPERATORS.values()])
            start, wall = self.rng.sample(range(self.most**2), 2) if self.kind == "grid" else (0, 0)
            key = f"{self.most} {start} {wall}" if self.kind == "grid" else f"{number} {sign}"
            if split_of(key) == split_of_task(self.task.seed):
                return number, sign, start, wall
        raise ConfigError(f"no grid of size {self.most} is left for this split; expected a larger env.most.")

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {"most": self.most}

    @property
    def over(self) -> bool:
        return self.malformed or len(self.marks) >= self.task.data["attempts"]

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        if self.posed is None:
            system = "Write a task that another model solves about half of the time. Reply with the task alone."
            if self.kind == "grid":
                (row, col), (r, c) = divmod(self.start, self.most), divmod(self.wall, self.most)
                form = (
                    f"The task is a grid of {self.most} rows of {self.most} cells: # wall, . free, one S at row "
                    f"{row + 1}, column {col + 1}, one G, a wall at row {r + 1}, column {c + 1}, a way from S to G."
                )
            else:
                form = (
                    f"The task is an expression with + - * // % and brackets, of 1 to {self.most} operators and whole "
                    f"numbers up to {LARGEST}. It must use {self.number} and {self.operator}."
                )
            return {"proposer": Observation((Message("system", system), Message("user", form)), True, (), "propose")}
        if self.kind == "grid":
            system = "Lead S to G around the walls (#). Reply with the moves U, D, L, R alone."
        else:
            system = "Compute. // is division rounded down, % the remainder. Reply with the number alone."
        return {"solver": Observation((Message("system", system), Message("user", self.posed)), True, (), "solve")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "proposer":
            self.posed = self._checked(text)
            if self.posed is None:
                self.malformed = True
                return Rewards.process("illegal", {role: -1.0})
            return Rewards()
        mark = self._right(text)
        self.marks = (*self.marks, bool(mark))
        rewards = Rewards.agent("right", {role: float(bool(mark))})
        return rewards if mark is not None else rewards + Rewards.process("illegal", {role: PENALTY})

    def outcome(self) -> Rewards:
        if self.malformed:
            return Rewards.agent("frontier", {"proposer": 0.0})
        if not self.marks:  # truncated before the first attempt
            return Rewards.agent("frontier", {"proposer": None})
        share = sum(self.marks) / len(self.marks)
        return Rewards.agent("frontier", {"proposer": 1.0 - abs(2 * share - 1)})

    def state(self) -> str:
        asked = (
            f"start {self.start}, wall {self.wall}" if self.kind == "grid" else f"use {self.number} and {self.operator}"
        )
        marks = "".join("+" if mark else "-" for mark in self.marks)
        return f"{asked}\n{'malformed' if self.malformed else self.posed or 'nothing posed'}\nattempts: {marks}"

    def fork(self, seed: int | None = None) -> ProposerSolver:
        return self.twin()  # all values are immutable, and there is no randomness after the draw

    # -- the checker ----------------------------------------------------------------------------------------------

    def _checked(self, text: str) -> str | None:
        """The task as it is shown to the solver; None if it is not in the form."""
        if self.kind == "grid":
            rows = [row.replace(" ", "") for row in text.strip().splitlines()] if len(text) < 1000 else []
            grid = "\n".join(rows)
            fits = len(rows) == self.most and all(len(row) == self.most and not row.strip("#.SG") for row in rows)
            if not fits or grid.count("S") != 1 or grid.count("G") != 1:
                return None
            start, far = self._grid(grid)
            asked = start == self.start and grid.replace("\n", "")[self.wall] == "#"
            return grid if asked and start in far else None
        found = Expression.of(text)
        if found is None or len(found.operators) > self.most:
            return None
        return found.text if self.number in found.numbers and self.operator in found.operators else None

    def _grid(self, grid: str) -> tuple[int, dict[int, int]]:
        cells = grid.replace("\n", "")
        walls = frozenset(i for i, cell in enumerate(cells) if cell == "#")
        return cells.index("S"), distances(neighbours(self.most, walls), cells.index("G"))

    def _right(self, text: str) -> bool | None:
        """Whether an answer is right; None if it cannot be parsed."""
        assert self.posed is not None
        if self.kind == "grid":
            moves = read_directions(text) if len(text) <= 3 * 4 * self.most**2 else None
            if not moves or len(moves) > 4 * self.most**2:
                return None
            cells = self.posed.replace("\n", "")
            table = neighbours(self.most, frozenset(i for i, cell in enumerate(cells) if cell == "#"))
            at: int | None = cells.index("S")
            for move in moves:
                at = table[at].get(move) if at is not None else None
            return at is not None and cells[at] == "G"
        number = _NUMBER.fullmatch(text.strip())
        posed = Expression.of(self.posed)
        assert posed is not None
        return int(number[1]) == posed.value if number else None

    # -- for scripted players -------------------------------------------------------------------------------------

    def propose(self, rng: random.Random) -> str:
        """A task in the form, with random contents."""
        while self.kind == "grid":
            cells = ["." if rng.random() < 0.7 else "#" for _ in range(self.most**2)]
            cells[self.start], cells[self.wall] = "S", "#"
            goal = rng.choice([i for i in range(self.most**2) if i not in (self.start, self.wall)])
            cells[goal] = "G"
            grid = "\n".join("".join(cells[r : r + self.most]) for r in range(0, len(cells), self.most))
            if self._checked(grid) is not None:
                return grid
        # Large numbers, except for divisors, spread the values: no number answers more than 1 in 400.
        other = rng.randint(2, 5 if self.operator == "//" else LARGEST)
        extra = "".join(f" + {rng.randint(1, 9)}" for _ in range(rng.randrange(self.most)))
        return f"{self.number} {self.operator} {other}{extra}"

    def answer(self) -> str:
        """A right answer to the task."""
        assert self.posed is not None
        if self.kind == "arithmetic":
            posed = Expression.of(self.posed)
            assert posed is not None
            return str(posed.value)
        cells = self.posed.replace("\n", "")
        at, far = self._grid(self.posed)
        moves = []
        table = neighbours(self.most, frozenset(i for i, cell in enumerate(cells) if cell == "#"))
        while cells[at] != "G":
            move = next(m for m in DIRECTIONS if m in table[at] and far[table[at][m]] == far[at] - 1)
            at = table[at][move]
            moves.append(move)
        return " ".join(moves)

"""Plan-Path: find the way through a grid of walls. A planner advises an actor (as in AT-GRPO).

Rules         a square grid with walls, a start and a goal; each move goes one cell up, down, left or right. The episode
              ends at the goal, or at the turn limit (by default two more than twice the length of the shortest way).
Roles         planner, who speaks first in every turn, and actor, who moves; `team = "single"`: the actor alone.
Observation   the grid with the current position: @ you, G the goal, # walls, . free. `view = "image"` shows it as a
              picture, "both" in words too. The actor also sees what the planner said in this turn. Every prompt is
              fresh and complete.
Actions       actor: U, D, L or R (or the words), up to `moves` of them. A move into a wall or off the grid is
              illegal: it and the rest of the reply are not played, and the turn is used up. Planner: free text, cut at
              400 characters, or with `speech = "action"` a reply that the actor could give.
Rewards       `solved` (team, at the end): 1 at the goal, else 0. `progress` (team, each turn): how much shorter the
              shortest way to the goal became, as a share of the shortest way from the start (no position counts less
              than −1). `illegal` (process): −0.1. `format` (agent): −0.1 more for a reply that cannot be parsed.
Difficulty    size, walls, length of the shortest way (between `min_length` and `max_length`).
Version       1
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field, model_validator

from interplay.envs.env import register
from interplay.envs.games.grid import Neighbours, distances, neighbours, read_directions
from interplay.envs.games.puzzle import Mine, PictureOptions, Puzzle, PuzzleLevel
from interplay.envs.picture import Look
from interplay.errors import ConfigError


class Options(PictureOptions):
    size: int = Field(6, ge=3, le=20, description="rows and columns")
    walls: float = Field(0.25, ge=0, le=0.6, description="share of the cells that are walls")
    min_length: int = Field(3, ge=1, description="smallest length of the shortest way, in moves")
    max_length: int = Field(0, ge=0, description="largest length of the shortest way, in moves; 0: no limit")

    @model_validator(mode="after")
    def _lengths_are_a_range(self) -> Options:
        if self.max_length and self.max_length < self.min_length:
            raise ConfigError(f"env.max_length is {self.max_length}; expected 0, or at least env.min_length.")
        return self


@dataclass(frozen=True)
class PathLevel(PuzzleLevel):
    size: int
    walls: frozenset[int]
    start: int
    goal: int
    table: Neighbours
    distance: Mapping[int, int]


@register("plan_path")
class PlanPath(Puzzle):
    Options = Options
    rules = "Lead @ to G around the walls (#)."
    form = "A move is U, D, L or R."
    looks: ClassVar[Mapping[str, Look]] = {
        "#": Look((60, 60, 60)),
        ".": Look((255, 255, 255)),
        "G": Look((255, 255, 255), (20, 160, 60), "square"),
        "@": Look((255, 255, 255), (30, 80, 220), "disc"),
    }
    legend = "In the picture, @ is a blue disc, G a green square, walls are dark and free cells white."
    level: PathLevel

    @classmethod
    def draw(cls, rng: random.Random, data: Mapping[str, Any], mine: Mine) -> PuzzleLevel | None:
        size = data["size"]
        cells = list(range(size * size))
        rng.shuffle(cells)
        count = min(round(data["walls"] * len(cells)), len(cells) - 2)
        walls, goal = frozenset(cells[:count]), cells[count]
        table = neighbours(size, walls)
        distance = distances(table, goal)
        low, high = data["min_length"], data["max_length"] or len(cells)
        starts = [cell for cell in cells[count + 1 :] if low <= distance.get(cell, 0) <= high]
        if not starts:
            return None
        start = starts[0]
        key = f"{size} {sorted(walls)} {start} {goal}"
        if not mine(key):
            return None
        length = distance[start]
        difficulty = {"size": size, "walls": count, "length": length}
        return PathLevel(key, length, difficulty, size, walls, start, goal, table, distance)

    def begin(self) -> None:
        self.cell = self.level.start

    def view(self) -> str:
        level = self.level
        cells = ["#" if i in level.walls else "." for i in range(level.size**2)]
        cells[level.goal] = "G"
        cells[self.cell] = "@"
        return "\n".join(" ".join(cells[r : r + level.size]) for r in range(0, len(cells), level.size))

    def legal_moves(self) -> list[str]:
        return list(self.level.table[self.cell])

    def read(self, text: str) -> list[str] | None:
        return read_directions(text)

    def play(self, move: str) -> bool:
        if move not in self.level.table[self.cell]:
            return False
        self.cell = self.level.table[self.cell][move]
        return True

    def measure(self) -> float:
        return 1.0 - self.level.distance[self.cell] / self.level.moves

    @property
    def solved(self) -> bool:
        return self.cell == self.level.goal

    def solution(self) -> list[str]:
        """The shortest way from here."""
        level, cell = self.level, self.cell
        moves: list[str] = []
        while cell != level.goal:
            move = next(m for m, to in level.table[cell].items() if level.distance[to] < level.distance[cell])
            cell = level.table[cell][move]
            moves.append(move)
        return moves

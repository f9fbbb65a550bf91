"""Sokoban: push every box onto a goal, in rooms drawn from a seed or read from a file. A planner advises an actor.

Rules         a move goes one cell up, down, left or right. Walking into a box pushes it, if the cell behind it is free.
              Boxes are never pulled, and only one is pushed at a time. The episode ends when all boxes are on goals, or
              at the turn limit (by default two more than twice the moves of a known solution).
Roles         planner, who speaks first in every turn, and actor, who moves; `team = "single"`: the actor alone.
Observation   the present room: @ you, $ box, . goal, * box on a goal, + you on a goal, # wall, - floor.
              `view = "image"` shows it as a picture, "both" in words too. The actor also sees what the planner said
              in this turn. Every prompt is fresh and complete.
Actions       actor: U, D, L or R (or the words), up to `moves` of them. A blocked move is illegal: it and the rest of
              the reply are not played, and the turn is used up. Planner: free text, cut at 400 characters, or with
              `speech = "action"` a reply that the actor could give.
Rewards       `solved` (team, at the end): 1 with every box on a goal, else 0. `progress` (team, each turn): how much
              nearer the boxes are to the goals, in pushes over an empty floor with each box matched to one goal, as a
              share of the first distance. A box that cannot be pushed to any goal counts as far away, and no position
              counts less than −1. With `nearer = "moves"` (for one or two boxes) the moves of a shortest solution
              count, including walking, so every step on the way earns something; `hopeless = "end"` then ends a play
              that has no solution any more. `illegal` (process): −0.1. `format` (agent): −0.1 more for a reply that
              cannot be parsed.
Difficulty    size, boxes, walls, pushes (between `min_pushes` and `max_pushes`) of the solution that the room was drawn
              with. This is the smallest number, unless a step of the search had more than 200 positions.
Files         `file` is in the .xsb format (also Boxoban's): the symbols above, space or _ for floor, other lines
              between the levels. It sets size, boxes and walls. The turn limit is then based on an estimate.
Version       1
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.envs.env import register
from interplay.envs.games.grid import read_directions
from interplay.envs.games.level_file import FileOptions, from_file
from interplay.envs.games.puzzle import Mine, PictureOptions, Puzzle, PuzzleLevel
from interplay.envs.games.sokoban_room import (
    FloorPlan,
    Room,
    bits,
    draw_boxes,
    make_room,
    move_distances,
    offsets,
    parse_xsb,
    reach,
    read_xsb,
)
from interplay.envs.picture import Look
from interplay.errors import ConfigError

EXACT = 2  # up to this many boxes, all positions of a room can be searched


class Options(PictureOptions, FileOptions):
    size: int = Field(6, ge=5, le=12, description="rows and columns, including the outer walls")
    boxes: int = Field(1, ge=1, le=4, description="number of boxes, and of goals")
    walls: float = Field(0.1, ge=0, le=0.4, description="share of the inner cells that are walls")
    min_pushes: int = Field(2, ge=1, description="smallest number of pushes of the solution")
    max_pushes: int = Field(0, ge=0, description="largest number of pushes of the solution; 0: no limit")
    nearer: Literal["pushes", "moves"] = Field("pushes", description="the unit of progress")
    hopeless: Literal["play", "end"] = Field("play", description="whether to end a position that has no solution")

    @model_validator(mode="after")
    def _pushes_are_a_range(self) -> Options:
        if self.max_pushes and self.max_pushes < self.min_pushes:
            raise ConfigError(f"env.max_pushes is {self.max_pushes}; expected 0, or at least env.min_pushes.")
        if self.hopeless == "end" and self.nearer != "moves":
            raise ConfigError(
                "env.hopeless is 'end', but env.nearer is 'pushes'; expected 'moves', which finds such positions."
            )
        if self.nearer == "moves" and not self.file:
            _refuse_many(self.boxes)
        return self


def _refuse_many(boxes: int) -> None:
    if boxes > EXACT:
        raise ConfigError(
            f"env.nearer is 'moves', but a room has {boxes} boxes; expected at most {EXACT}, because all positions are "
            "searched."
        )


@register("sokoban")
class Sokoban(Puzzle):
    Options = Options
    rules = "Sokoban: @ pushes every box ($) onto a goal (.). Boxes cannot be pulled."
    form = "A move is U, D, L or R."
    looks: ClassVar[Mapping[str, Look]] = {
        "#": Look((60, 60, 60)),
        "-": Look((255, 255, 255)),
        ".": Look((255, 235, 140)),
        "$": Look((255, 255, 255), (170, 90, 30), "square"),
        "*": Look((255, 235, 140), (170, 90, 30), "square"),
        "@": Look((255, 255, 255), (30, 80, 220), "disc"),
        "+": Look((255, 235, 140), (30, 80, 220), "disc"),
    }
    legend = "In the picture, @ is a blue disc, boxes are brown squares, goals yellow, walls dark and floor white."
    level: Room

    @classmethod
    def draw(cls, rng: random.Random, data: Mapping[str, Any], mine: Mine) -> PuzzleLevel | None:
        if data["file"]:
            return parse_xsb(from_file(rng, data, read_xsb, mine))
        size, count = data["size"], data["boxes"]
        inner = [r * size + c for r in range(1, size - 1) for c in range(1, size - 1)]
        rng.shuffle(inner)
        blocked = round(data["walls"] * len(inner))
        cells = inner[blocked:]
        floor = sum(1 << cell for cell in cells)
        if len(cells) < count + 2 or reach(cells[0], floor, size) != floor:
            return None
        goals = sum(1 << cell for cell in cells[:count])
        key = f"{size} {floor} {goals}"  # the room without its boxes, so that no room is in two splits
        if not mine(key):
            return None
        drawn = draw_boxes(rng, floor, goals, size, data["min_pushes"], data["max_pushes"] or 10**6)
        if drawn is None:
            return None
        boxes, player, pushes, moves = drawn
        return make_room(key, FloorPlan(size, size, floor, goals, boxes, player), moves, pushes)

    def begin(self) -> None:
        self.steps = offsets(self.level.width)
        self.boxes, self.player = self.level.boxes, self.level.player
        self.exact: Mapping[tuple[int, int], int] | None = None
        if self.task.data["nearer"] == "moves":
            _refuse_many(self.boxes.bit_count())
            self.exact = move_distances(self.level.floor, self.level.goals, self.level.width)
        self.start = self._far()

    def view(self) -> str:
        level = self.level
        cells = ["#"] * (level.width * level.height)
        for cell in bits(level.floor):
            cells[cell] = "-"
        for cell in bits(level.goals):
            cells[cell] = "."
        for cell in bits(self.boxes):
            cells[cell] = "*" if level.goals >> cell & 1 else "$"
        cells[self.player] = "+" if level.goals >> self.player & 1 else "@"
        return "\n".join(" ".join(cells[r : r + level.width]) for r in range(0, len(cells), level.width))

    def legal_moves(self) -> list[str]:
        return [move for move in self.steps if self._free(move)]

    def _free(self, move: str) -> bool:
        to = self.player + self.steps[move]
        if self.boxes >> to & 1:
            return bool((self.level.floor & ~self.boxes) >> (to + self.steps[move]) & 1)
        return bool(self.level.floor >> to & 1)

    def read(self, text: str) -> list[str] | None:
        return read_directions(text)

    def play(self, move: str) -> bool:
        if not self._free(move):
            return False
        self.player += self.steps[move]
        if self.boxes >> self.player & 1:
            self.boxes ^= 1 << self.player | 1 << (self.player + self.steps[move])
        return True

    def _far(self) -> int:
        if self.exact is None:
            return self.level.far(self.boxes)
        return self.exact.get((self.boxes, self.player), 2 * self.level.width * self.level.height)

    def measure(self) -> float:
        return 1.0 - self._far() / self.start

    @property
    def over(self) -> bool:
        if self.exact is not None and self.task.data["hopeless"] == "end":
            return super().over or (self.boxes, self.player) not in self.exact
        return super().over

    @property
    def solved(self) -> bool:
        return self.boxes == self.level.goals

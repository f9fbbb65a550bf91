"""Sokoban: push every box onto a goal, drawn from a seed or read from a file, a planner advising an actor.

Rules         a move goes one cell up, down, left or right; walking into a box pushes it if the cell behind is free.
              Boxes are never pulled, and only one is pushed at a time. It ends when all boxes are on goals, or at the
              turn limit (by default twice the moves of a known solution, and two).
Roles         planner, who speaks first in every turn, and actor, who moves; `team = "single"`: the actor alone.
Observation   the room as it is now: @ you, $ box, . goal, * box on a goal, + you on a goal, # wall, - floor. The
              actor also sees what the planner said in this turn. Every prompt is fresh and complete in itself.
Actions       actor: U, D, L or R (or the words), up to `moves` of them. A move that is blocked is illegal: it and the
              rest of the reply are not played, and the turn is spent. Planner: free text, cut at 400 characters, or
              with `speech = "action"` a reply that the actor could give.
Rewards       `solved` (team, at the end): 1 with every box on a goal, else 0. `progress` (team, each turn): how much
              nearer the boxes are to the goals, in pushes over an empty floor with each box matched to one goal, as a
              share of the first distance; a box that no push can bring to a goal counts as far off, and no position
              as worse than −1. With `nearer = "moves"` it is the moves of a shortest solution that count, walking
              included (one or two boxes): then every step on the way earns, and `hopeless = "end"` ends a play from
              which there is no solution left. `illegal` (process): −0.1. `format`
              (agent): −0.1 more for a reply that cannot be read.
Difficulty    size, boxes, walls, pushes (bounded by `min_pushes` and `max_pushes`): of the solution that the room was
              drawn with, the fewest there are unless a step of the search had more than 200 positions.
Files         `file` is in the .xsb format (also Boxoban's): the symbols above, space or _ for floor, other lines
              between the levels. It sets size, boxes and walls; the turn limit then follows an estimate.
Version       1
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, model_validator

from interplay.envs.env import register
from interplay.envs.games.grid import DIRECTIONS, read_directions
from interplay.envs.games.level_file import FileOptions, from_file
from interplay.envs.games.puzzle import Mine, Puzzle, PuzzleLevel, PuzzleOptions
from interplay.errors import ConfigError

BEAM = 200  # positions kept of one step of the search backwards
SEARCH = 3_000  # positions after which it takes no further step
EXACT = 2  # boxes of a room whose every position can be searched
_SYMBOLS = frozenset("#@+$*.-_ ")


class Options(PuzzleOptions, FileOptions):
    size: int = Field(6, ge=5, le=12, description="rows and columns, the outer walls among them")
    boxes: int = Field(1, ge=1, le=4)
    walls: float = Field(0.1, ge=0, le=0.4, description="share of the inner cells that are walls")
    min_pushes: int = Field(2, ge=1)
    max_pushes: int = Field(0, ge=0, description="0: any")
    nearer: Literal["pushes", "moves"] = Field("pushes", description="what progress is measured in")
    hopeless: Literal["play", "end"] = Field("play", description="what to do with a position that has no solution")

    @model_validator(mode="after")
    def _pushes_are_a_range(self) -> Options:
        if self.max_pushes and self.max_pushes < self.min_pushes:
            raise ConfigError(f"env.max_pushes is {self.max_pushes}; expected at least env.min_pushes.")
        if self.hopeless == "end" and self.nearer != "moves":
            raise ConfigError("env.hopeless is 'end', but env.nearer is 'pushes'; expected 'moves', which can tell.")
        if self.nearer == "moves" and not self.file:
            _refuse_many(self.boxes)
        return self


def _refuse_many(boxes: int) -> None:
    if boxes > EXACT:
        raise ConfigError(
            f"env.nearer is 'moves' in a room of {boxes} boxes; expected at most {EXACT}: all positions are searched."
        )


# A set of cells is an integer, cell i its bit i; a step in a direction is a shift. All rooms have a border of walls.


def bits(cells: int) -> Iterator[int]:
    while cells:
        yield (cells & -cells).bit_length() - 1
        cells &= cells - 1


def shift(cells: int, offset: int) -> int:
    return cells << offset if offset > 0 else cells >> -offset


def reach(player: int, free: int, width: int) -> int:
    """The cells that a player on cell `player` can walk to."""
    region = 1 << player
    while True:
        grown = (region | region << 1 | region >> 1 | region << width | region >> width) & free
        if grown == region:
            return region
        region = grown


def offsets(width: int) -> dict[str, int]:
    return {move: dr * width + dc for move, (dr, dc) in DIRECTIONS.items()}


def walk(start: int, to: int, free: int, width: int) -> list[str] | None:
    """The shortest way between two cells, as moves."""
    steps = offsets(width)
    came: dict[int, tuple[int, str]] = {start: (start, "")}
    queue = deque([start])
    while queue and to not in came:
        cell = queue.popleft()
        for move, offset in steps.items():
            if free >> (cell + offset) & 1 and cell + offset not in came:
                came[cell + offset] = (cell, move)
                queue.append(cell + offset)
    if to not in came:
        return None
    moves = []
    while to != start:
        to, move = came[to]
        moves.append(move)
    return moves[::-1]


def push_distances(floor: int, goal: int, width: int) -> dict[int, int]:
    """Pushes that bring a lone box to `goal`, of every cell from which it can be brought there at all."""
    found = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for offset in (1, -1, width, -width):
            before = cell - offset
            if before not in found and floor >> before & 1 and floor >> (before - offset) & 1:
                found[before] = found[cell] + 1
                queue.append(before)
    return found


@lru_cache(maxsize=1024)
def move_distances(floor: int, goals: int, width: int) -> Mapping[tuple[int, int], int]:
    """Moves to the end from every position (boxes, player) that has a solution, found backwards from the end."""
    found = {(goals, player): 0 for player in bits(floor & ~goals)}
    queue = deque(found)
    while queue:
        boxes, player = position = queue.popleft()
        for offset in (1, -1, width, -width):
            came = player - offset
            if not (floor & ~boxes) >> came & 1:
                continue
            before = [(boxes, came)]
            if boxes >> (player + offset) & 1:  # or that move pushed the box in front
                before.append((boxes ^ 1 << (player + offset) ^ 1 << player, came))
            for earlier in before:
                if earlier not in found and earlier[0] != goals:
                    found[earlier] = found[position] + 1
                    queue.append(earlier)
    return found


@dataclass(frozen=True)
class Room(PuzzleLevel):
    width: int
    height: int
    floor: int
    goals: int
    boxes: int
    player: int
    pulls: tuple[Mapping[int, int], ...]  # push_distances of each goal

    def far(self, boxes: int) -> int:
        """Pushes over an empty floor that the boxes need at least; 0 exactly when all are on goals."""
        lost = self.width + self.height
        table = [[pulls.get(box, lost) for pulls in self.pulls] for box in bits(boxes)]
        if len(table) > 5:  # matching is too slow; each box to its nearest goal
            return sum(map(min, table))
        ways = itertools.permutations(range(len(table)))
        return min(sum(row[goal] for row, goal in zip(table, way, strict=True)) for way in ways)


def make_room(
    key: str, width: int, height: int, floor: int, goals: int, boxes: int, player: int, moves: int, pushes: int
) -> Room:
    pulls = tuple(push_distances(floor, goal, width) for goal in bits(goals))
    inner = (width - 2) * (height - 2)
    difficulty = {"size": width, "boxes": boxes.bit_count(), "walls": inner - floor.bit_count()}
    difficulty |= {"pushes": pushes} if pushes else {}
    return Room(key, moves, difficulty, width, height, floor, goals, boxes, player, pulls)


def read_xsb(text: str) -> list[str]:
    """The levels of an .xsb collection, each as its rows."""
    levels: list[list[str]] = [[]]
    for line in text.splitlines():
        row = line.rstrip()
        if "#" in row and set(row) <= _SYMBOLS:
            levels[-1].append(row)
        elif levels[-1]:
            levels.append([])
    return ["\n".join(rows) for rows in levels if rows]


def parse_xsb(text: str) -> Room:
    """A level from its rows. What the player could never reach counts as wall."""
    rows = text.replace("_", "-").replace(" ", "-").splitlines()
    width = max(map(len, rows)) + 2
    cells = {(r + 1) * width + c + 1: mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    at = {mark: {cell for cell, found in cells.items() if found == mark} for mark in "@+$*.#"}
    players, boxes, goals = at["@"] | at["+"], at["$"] | at["*"], at["."] | at["*"] | at["+"]
    if len(players) != 1 or not boxes or len(boxes) != len(goals):
        raise ConfigError(
            f"a level of env.file has {len(players)} players, {len(boxes)} boxes and {len(goals)} goals; "
            f"expected one player and as many boxes as goals:\n{text}"
        )
    if boxes == goals:
        raise ConfigError(f"a level of env.file is solved already; expected a box off its goal:\n{text}")
    (player,) = players
    floor = reach(player, sum(1 << cell for cell, mark in cells.items() if mark != "#"), width)
    if not all(floor >> cell & 1 for cell in boxes | goals):
        raise ConfigError(f"a level of env.file has a box or goal behind walls:\n{text}")
    # Cut away the outermost rows and columns that hold nothing.
    used = [divmod(cell, width) for cell in bits(floor)]
    top, left = min(r for r, _ in used) - 1, min(c for _, c in used) - 1
    wide, high = max(c for _, c in used) - left + 2, max(r for r, _ in used) - top + 2

    def move(cell: int) -> int:
        return (cell // width - top) * wide + cell % width - left

    floor, goal_bits, box_bits = (sum(1 << move(c) for c in group) for group in (list(bits(floor)), goals, boxes))
    room = make_room(text, wide, high, floor, goal_bits, box_bits, move(player), 0, 0)
    guess = max(30, 5 * room.far(room.boxes) + 2 * (wide + high))  # no solution is known
    return make_room(text, wide, high, floor, goal_bits, box_bits, move(player), guess, 0)


Position = tuple[int, int]  # boxes, and the lowest cell of the player's region


def draw_boxes(
    rng: random.Random, floor: int, goals: int, width: int, low: int, high: int
) -> tuple[int, int, int, int] | None:
    """Boxes, player, pushes and moves of a position drawn by pulling the boxes off their goals.

    Breadth first over (boxes, region of the player), so each step backwards is one push more of the shortest solution.
    """
    parents: dict[
        Position, tuple[Position, int, int] | None
    ] = {}  # the node after the push, the pushing player, the offset
    layer: list[tuple[Position, int]] = []
    rest = floor & ~goals
    while rest:
        region = reach((rest & -rest).bit_length() - 1, floor & ~goals, width)
        rest &= ~region
        node = (goals, region & -region)
        parents[node] = None
        layer.append((node, region))
    found: dict[int, list[Position]] = {}
    for depth in range(1, high + 1):
        following: list[tuple[Position, int]] = []
        for node, region in layer:
            boxes, free = node[0], floor & ~node[0]
            for offset in (1, -1, width, -width):
                # The player stands beside the box and has room to step back.
                for cell in bits(region & shift(boxes, -offset) & shift(free, offset)):
                    pulled = boxes ^ (1 << (cell + offset)) ^ (1 << cell)
                    area = reach(cell - offset, floor & ~pulled, width)
                    new = (pulled, area & -area)
                    if new not in parents:
                        parents[new] = (node, cell - offset, offset)
                        following.append((new, area))
        if not following:
            break
        layer = following if len(following) <= BEAM else rng.sample(following, BEAM)
        if depth >= low:
            found[depth] = [node for node, _ in layer]
        if len(parents) > SEARCH:
            break
    if not found:
        return None
    pushes = rng.choice(list(found))
    node = rng.choice(found[pushes])
    boxes = node[0]
    player = first = rng.choice(list(bits(reach(node[1].bit_length() - 1, floor & ~boxes, width))))
    moves = 0
    at: Position = node
    while (link := parents[at]) is not None:
        after, pusher, offset = link
        way = walk(player, pusher, floor & ~at[0], width)
        assert way is not None
        moves += len(way) + 1
        player, at = pusher + offset, after
    return boxes, first, pushes, moves


@register("sokoban")
class Sokoban(Puzzle):
    Options = Options
    rules = "Sokoban: @ pushes every box ($) onto a goal (.). Boxes cannot be pulled."
    form = "A move is U, D, L or R."
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
        key = f"{size} {floor} {goals}"  # the room without its boxes: no room of one split is another's
        if not mine(key):
            return None
        drawn = draw_boxes(rng, floor, goals, size, data["min_pushes"], data["max_pushes"] or 10**6)
        if drawn is None:
            return None
        boxes, player, pushes, moves = drawn
        return make_room(key, size, size, floor, goals, boxes, player, moves, pushes)

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

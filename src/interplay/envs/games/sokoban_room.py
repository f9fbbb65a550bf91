"""Sokoban rooms: cells as bits, distances, levels from .xsb text, positions drawn backwards from the solved room."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from interplay.envs.games.grid import DIRECTIONS
from interplay.envs.games.puzzle import PuzzleLevel
from interplay.errors import ConfigError

BEAM = 200  # positions that are kept in one step of the backward search
SEARCH = 3_000  # positions after which the backward search ends
_SYMBOLS = frozenset("#@+$*.-_ ")

# A set of cells is an integer with bit i for cell i. A step in a direction is a shift. Every room has a wall around it.


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
    """For every cell from which a single box can be brought to `goal`, the number of pushes."""
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
    """The moves to the end from every position (boxes, player) that has a solution, found backwards from the end."""
    found = {(goals, player): 0 for player in bits(floor & ~goals)}
    queue = deque(found)
    while queue:
        boxes, player = position = queue.popleft()
        for offset in (1, -1, width, -width):
            came = player - offset
            if not (floor & ~boxes) >> came & 1:
                continue
            before = [(boxes, came)]
            if boxes >> (player + offset) & 1:  # or this move pushed the box in front
                before.append((boxes ^ 1 << (player + offset) ^ 1 << player, came))
            for earlier in before:
                if earlier not in found and earlier[0] != goals:
                    found[earlier] = found[position] + 1
                    queue.append(earlier)
    return found


@dataclass(frozen=True)
class FloorPlan:
    """The positions of all things in a room, before anything is computed from them."""

    width: int
    height: int
    floor: int
    goals: int
    boxes: int
    player: int


@dataclass(frozen=True)
class Room(FloorPlan, PuzzleLevel):
    pulls: tuple[Mapping[int, int], ...]  # push_distances of each goal

    def far(self, boxes: int) -> int:
        """A lower bound of the pushes that the boxes need, over an empty floor; 0 exactly when all are on goals."""
        lost = self.width + self.height
        table = [[pulls.get(box, lost) for pulls in self.pulls] for box in bits(boxes)]
        if len(table) > 5:  # matching would be too slow, so take the nearest goal of each box
            return sum(map(min, table))
        ways = itertools.permutations(range(len(table)))
        return min(sum(row[goal] for row, goal in zip(table, way, strict=True)) for way in ways)


def make_room(key: str, plan: FloorPlan, moves: int, pushes: int = 0) -> Room:
    """A level whose known solution has this many moves and pushes (0: not known)."""
    pulls = tuple(push_distances(plan.floor, goal, plan.width) for goal in bits(plan.goals))
    inner = (plan.width - 2) * (plan.height - 2)
    difficulty = {"size": plan.width, "boxes": plan.boxes.bit_count(), "walls": inner - plan.floor.bit_count()}
    difficulty |= {"pushes": pushes} if pushes else {}
    return Room(key=key, moves=moves, difficulty=difficulty, **vars(plan), pulls=pulls)


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
    """A level from its rows. Cells that the player can never reach count as walls."""
    rows = text.replace("_", "-").replace(" ", "-").splitlines()
    width = max(map(len, rows)) + 2
    cells = {(r + 1) * width + c + 1: mark for r, row in enumerate(rows) for c, mark in enumerate(row)}
    at = {mark: {cell for cell, found in cells.items() if found == mark} for mark in "@+$*.#"}
    players, boxes, goals = at["@"] | at["+"], at["$"] | at["*"], at["."] | at["*"] | at["+"]
    if len(players) != 1 or not boxes or len(boxes) != len(goals):
        raise ConfigError(
            f"a level of env.file has {len(players)} players, {len(boxes)} boxes and {len(goals)} goals; expected one "
            f"player, and as many boxes as goals:\n{text}"
        )
    if boxes == goals:
        raise ConfigError(
            f"a level of env.file is already solved; expected at least one box that is not on a goal:\n{text}"
        )
    (player,) = players
    floor = reach(player, sum(1 << cell for cell, mark in cells.items() if mark != "#"), width)
    if not all(floor >> cell & 1 for cell in boxes | goals):
        raise ConfigError(
            f"a level of env.file has a box or goal behind walls; expected that the player can reach it:\n{text}"
        )
    # Remove empty outer rows and columns.
    used = [divmod(cell, width) for cell in bits(floor)]
    top, left = min(r for r, _ in used) - 1, min(c for _, c in used) - 1
    wide, high = max(c for _, c in used) - left + 2, max(r for r, _ in used) - top + 2

    def move(cell: int) -> int:
        return (cell // width - top) * wide + cell % width - left

    floor, goal_bits, box_bits = (sum(1 << move(c) for c in group) for group in (list(bits(floor)), goals, boxes))
    plan = FloorPlan(wide, high, floor, goal_bits, box_bits, move(player))
    guess = max(30, 5 * make_room(text, plan, 0).far(box_bits) + 2 * (wide + high))  # no solution is known
    return make_room(text, plan, guess)


Position = tuple[int, int]  # boxes, and the lowest cell of the player's region
# For each position found backwards: the position after the push, the pushing player and the offset; None for the end.
Pushes = dict[Position, tuple[Position, int, int] | None]


def draw_boxes(
    rng: random.Random, floor: int, goals: int, width: int, low: int, high: int
) -> tuple[int, int, int, int] | None:
    """Boxes, player, pushes and moves of a position that is drawn by pulling the boxes off their goals, or None.

    `low` and `high` limit the pushes of its shortest solution.
    """
    after: Pushes = {}
    found: dict[int, list[Position]] = {}  # by the number of pushes
    layer = _ends(floor, goals, width, after)
    for depth in range(1, high + 1):
        layer = _pulled(layer, floor, width, after)
        if not layer:
            break
        layer = layer if len(layer) <= BEAM else rng.sample(layer, BEAM)
        if depth >= low:
            found[depth] = [position for position, _ in layer]
        if len(after) > SEARCH:
            break
    if not found:
        return None
    pushes = rng.choice(list(found))
    position = rng.choice(found[pushes])
    boxes = position[0]
    player = rng.choice(list(bits(reach(position[1].bit_length() - 1, floor & ~boxes, width))))
    return boxes, player, pushes, _moves(position, player, floor, width, after)


def _ends(floor: int, goals: int, width: int, after: Pushes) -> list[tuple[Position, int]]:
    """All positions with all boxes on goals, one for each region in which the player can be."""
    layer = []
    rest = floor & ~goals
    while rest:
        region = reach((rest & -rest).bit_length() - 1, floor & ~goals, width)
        rest &= ~region
        position = (goals, region & -region)
        after[position] = None
        layer.append((position, region))
    return layer


def _pulled(layer: list[tuple[Position, int]], floor: int, width: int, after: Pushes) -> list[tuple[Position, int]]:
    """The new positions that are one pull before those of a layer: their shortest solution has one more push."""
    following = []
    for position, region in layer:
        boxes, free = position[0], floor & ~position[0]
        for offset in (1, -1, width, -width):
            # The player stands next to the box and has room to step back.
            for cell in bits(region & shift(boxes, -offset) & shift(free, offset)):
                pulled = boxes ^ (1 << (cell + offset)) ^ (1 << cell)
                area = reach(cell - offset, floor & ~pulled, width)
                new = (pulled, area & -area)
                if new not in after:
                    after[new] = (position, cell - offset, offset)
                    following.append((new, area))
    return following


def _moves(position: Position, player: int, floor: int, width: int, after: Pushes) -> int:
    """The moves of the solution that was found, including walking."""
    moves = 0
    while (push := after[position]) is not None:
        following, pusher, offset = push
        way = walk(player, pusher, floor & ~position[0], width)
        assert way is not None
        moves += len(way) + 1
        player, position = pusher + offset, following
    return moves

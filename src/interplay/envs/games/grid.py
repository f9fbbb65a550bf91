"""Moves on a grid of cells: the four directions, how a reply names them, and distances around walls.

A cell is a number, row by row from the top left.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence

DIRECTIONS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
_NAMES = {"UP": "U", "DOWN": "D", "LEFT": "L", "RIGHT": "R"}
Neighbours = tuple[dict[str, int], ...]  # for each cell, the cells next to it, by the move that leads there


def read_directions(text: str) -> list[str] | None:
    """`U`, `up`, `U, R, R` and `URR` as single letters; None for anything else."""
    moves: list[str] = []
    for word in re.split(r"[\s,;]+", text.strip(" \t\r\n.,;").upper()):
        if word in _NAMES:
            moves.append(_NAMES[word])
        elif word and not word.strip("UDLR"):
            moves += word
        else:
            return None
    return moves


def neighbours(size: int, walls: frozenset[int]) -> Neighbours:
    table = []
    for cell in range(size * size):
        row, col = divmod(cell, size)
        ways = {}
        for move, (dr, dc) in DIRECTIONS.items():
            r, c = row + dr, col + dc
            if 0 <= r < size and 0 <= c < size and r * size + c not in walls:
                ways[move] = r * size + c
        table.append(ways)
    return tuple(table)


def distances(table: Sequence[Mapping[str, int]], goal: int) -> dict[int, int]:
    """The number of moves to `goal` from every cell that can reach it. It searches from the goal."""
    found = {goal: 0}
    queue = deque([goal])
    while queue:
        cell = queue.popleft()
        for other in table[cell].values():
            if other not in found:
                found[other] = found[cell] + 1
                queue.append(other)
    return found

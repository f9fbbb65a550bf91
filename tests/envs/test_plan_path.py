"""Plan-Path: the grid, its walls, and the shortest way."""

from __future__ import annotations

from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games.grid import distances, neighbours
from interplay.envs.games.plan_path import PlanPath


def path(index: int = 0, **options: Any) -> PlanPath:
    env = make(sample_task("plan_path", {"team": "single", **options}, index=index))
    assert isinstance(env, PlanPath)
    return env


def test_walls_and_edges_stop_a_move() -> None:
    """Neighbours are free cells inside the grid; distances go around walls."""
    table = neighbours(3, frozenset({1, 4}))  # a wall from the top, open at the bottom
    assert table[0] == {"D": 3} and table[8] == {"U": 5, "L": 7}
    assert distances(table, 2) == {2: 0, 5: 1, 8: 2, 7: 3, 6: 4, 3: 5, 0: 6}


def test_the_shown_grid_is_the_grid_that_is_played() -> None:
    """Moves follow what the view shows: # stops, . does not, @ moves along, G ends the episode."""
    for i in range(10):
        env = path(i)
        for move in env.solution():
            rows = [row.split() for row in env.view().splitlines()]
            ((r, c),) = [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell == "@"]
            around = {"U": (r - 1, c), "D": (r + 1, c), "L": (r, c - 1), "R": (r, c + 1)}
            size = len(rows)
            free = [m for m, (y, x) in around.items() if 0 <= y < size and 0 <= x < size and rows[y][x] != "#"]
            assert free == env.legal_moves()
            assert env.step({"actor": move}).records[0].value == pytest.approx(1 / env.level.moves)
        assert env.solved and "G" not in env.view()


def test_going_away_costs_what_coming_back_earns() -> None:
    """Progress has a sign: going away and coming back earns nothing."""
    env = path(3)
    there = env.legal_moves()[-1]
    back = {"U": "D", "D": "U", "L": "R", "R": "L"}[there]
    first, second = (env.step({"actor": move}).records[0].value for move in (there, back))
    assert first is not None and second is not None and first == pytest.approx(-second) and first != 0

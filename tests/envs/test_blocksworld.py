"""Tests of Blocksworld: the rules of stacking, shortest plans, and whether a block stands in its right place."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games.blocksworld import TABLE, Blocksworld, Support, moves_of, plan, right, scatter, stacks


def blocks(index: int = 0, **options: Any) -> Blocksworld:
    env = make(sample_task("blocksworld", {"team": "single", **options}, index=index))
    assert isinstance(env, Blocksworld)
    return env


def lengths(start: Support) -> dict[Support, int]:
    """Breadth-first search over all positions."""
    found, queue = {start: 0}, deque([start])
    while queue:
        on = queue.popleft()
        for block, to in moves_of(on):
            after = (*on[:block], to, *on[block + 1 :])
            if after not in found:
                found[after] = found[on] + 1
                queue.append(after)
    return found


@pytest.mark.parametrize(("count", "states"), [(3, 13), (4, 73), (5, 501)])
def test_every_position_can_be_reached_and_plans_are_shortest(count: int, states: int) -> None:
    """The known number of positions; A* agrees with a search of everything."""
    start = (TABLE,) * count
    found = lengths(start)
    assert len(found) == states
    rng = random.Random(0)
    for goal in rng.sample(sorted(found), 12):
        far = lengths(goal)
        for on in rng.sample(sorted(found), 12):
            steps = plan(on, goal)
            assert len(steps) == far[on]
            for block, to in steps:
                assert (block, to) in moves_of(on)
                on = (*on[:block], to, *on[block + 1 :])
            assert on == goal


def test_only_free_blocks_move_and_only_onto_free_ones() -> None:
    """Covered blocks cannot move; a block cannot be put on itself or where it already is."""
    env = blocks()
    env.on = (TABLE, 0, TABLE, TABLE)  # B on A; C and D on the table
    assert stacks(env.on) == "A B | C | D"
    assert set(env.legal_moves()) == {
        "B on table", "B on C", "B on D", "C on B", "C on D", "D on B", "D on C",
    }  # fmt: skip
    for move in ("A on C", "C on A", "B on B", "B on A", "C on table", "H on A", "A on H"):
        assert not env.play(move)
    assert env.play("C on B") and stacks(env.on) == "A B C | D"


def test_a_block_stands_right_only_on_what_stands_right() -> None:
    """A right neighbour on a wrong foundation earns nothing yet."""
    goal = (TABLE, 0, 1)  # A B C
    assert right((TABLE, TABLE, 1), goal) == [True, False, False]
    assert right((TABLE, 0, TABLE), goal) == [True, True, False]
    assert right(goal, goal) == [True, True, True]


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("A on B", ["A on B"]), ("a on table.", ["A on table"]), ("move C onto the table", ["C on table"]),
        ("A on B, B on table", ["A on B", "B on table"]), ("A B", None), ("A on Z", None), ("", None),
    ],
)  # fmt: skip
def test_replies_are_read_strictly(text: str, moves: list[str] | None) -> None:
    """`A on B`, with some tolerance for other words."""
    assert blocks().read(text) == moves


def test_any_position_can_be_drawn() -> None:
    """All 73 positions of four blocks turn up."""
    rng = random.Random(0)
    assert len({scatter(rng, 4) for _ in range(3000)}) == 73

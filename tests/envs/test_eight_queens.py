"""Queens: attacks, completions, taking back, and the value of a board that cannot be completed."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games.eight_queens import NONE, Board, EightQueens, attacked, complete


def queens(index: int = 0, **options: Any) -> EightQueens:
    env = make(sample_task("eight_queens", {"team": "single", **options}, index=index))
    assert isinstance(env, EightQueens)
    return env


def peaceful(board: Board) -> bool:
    placed = [(r, c) for r, c in enumerate(board) if c != NONE]
    return all(c != d and abs(r - s) != abs(c - d) for (r, c), (s, d) in itertools.combinations(placed, 2))


def test_all_92_boards_are_found() -> None:
    """The known number for eight queens; random completions give many of them and nothing else."""
    boards = {b for b in itertools.permutations(range(8)) if peaceful(b)}
    assert len(boards) == 92
    rng = random.Random(0)
    drawn = {complete((NONE,) * 8, rng) for _ in range(400)}
    assert drawn <= boards and len(drawn) > 60
    for first, second in itertools.product(range(8), repeat=2):
        start = (first, second, *(NONE,) * 6)
        if abs(first - second) > 1:
            fits = [b for b in boards if b[:2] == (first, second)]
            assert (complete(start) is not None) == bool(fits)


@pytest.mark.parametrize("options", [{}, {"size": 5, "given": 1}, {"size": 12, "given": 2}, {"given": 7}])
def test_a_drawn_board_can_be_completed(options: dict[str, Any]) -> None:
    """The given queens do not attack each other, and the board can be completed."""
    for i in range(10):
        level = queens(i, **options).level
        full = complete(level.board)
        assert peaceful(level.board) and full is not None and peaceful(full) and NONE not in full


def test_given_queens_stay_and_added_ones_can_be_taken_back() -> None:
    """Attacked squares are refused; `-row column` removes only queens that were added."""
    env = queens()
    row, col = next((r, c) for r, c in enumerate(env.board) if c != NONE)
    assert not env.play(f"-{row + 1} {col + 1}") and not env.play(f"{row + 1} {col + 1}")
    assert not env.play("9 1") and not env.play("0 0") and not env.play("-1 9")
    for r, c in itertools.product(range(8), repeat=2):
        assert (f"{r + 1} {c + 1}" in env.legal_moves()) == (not attacked(env.board, r, c))
    move = env.solution()[0]
    assert env.play(move) and env.measure() == pytest.approx(1 / 5)
    assert "q" in env.view() and env.play(f"-{move}") and env.board == env.level.board


def test_a_spoiled_board_is_worth_nothing_until_it_is_mended() -> None:
    """A queen that makes completion impossible removes the progress; the solver takes it back."""
    for i in range(40):
        env = queens(i, given=1)
        bad = [m for m in env.legal_moves() if (twin := env.fork()).play(m) and twin.measure() == 0.0]  # type: ignore[attr-defined]
        if bad:
            assert env.play(bad[0]) and env.measure() == 0.0
            moves = env.solution()
            assert moves[0] == f"-{bad[0]}" and all(env.play(m) for m in moves) and env.solved
            return
    raise AssertionError("no move ever spoiled a board")


@pytest.mark.parametrize(
    ("text", "moves"),
    [("3 5", ["3 5"]), ("-3 5", ["-3 5"]), ("03 5.", ["3 5"]), ("3 5, 4 1", ["3 5", "4 1"]), ("35", None), ("", None)],
)
def test_replies_are_read_strictly(text: str, moves: list[str] | None) -> None:
    """Row and column, a minus to take back."""
    assert queens().read(text) == moves

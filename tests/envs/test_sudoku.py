"""Sudoku: each puzzle has one solution, clues cannot be changed, and files have one puzzle per line."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games.sudoku import Sudoku, only_solution, peers, read_lines, solve
from interplay.errors import ConfigError

FILE = Path(__file__).parents[1] / "data" / "sudoku.txt"


def sudoku(index: int = 0, split: str = "train", **options: Any) -> Sudoku:
    env = make(sample_task("sudoku", {"team": "single", **options}, split, index))
    assert isinstance(env, Sudoku)
    return env


def test_there_are_288_grids_of_four() -> None:
    """The known count; every one obeys the rules."""
    grids = list(solve([0] * 16))
    assert len(set(grids)) == len(grids) == 288
    assert all(g[i] != g[j] for g in grids for i in range(16) for j in peers(4)[i])


@pytest.mark.parametrize("options", [{"blanks": 1}, {"blanks": 10}, {"size": 9, "blanks": 45}])
def test_a_drawn_puzzle_has_exactly_one_solution(options: dict[str, Any]) -> None:
    """The solution is unique, and it is the answer used for marking."""
    for i in range(8):
        level = sudoku(i, **options).level
        found = solve(level.clues)
        assert next(found) == level.answer and next(found, None) is None
        assert level.clues.count(0) == options["blanks"]


def test_several_and_no_solutions_are_told_apart() -> None:
    """`only_solution` is None unless there is exactly one."""
    full = next(solve([0] * 16))
    assert only_solution(full) == full
    assert only_solution([0] * 16) is None
    assert only_solution([1, 1, *[0] * 14]) is None
    assert list(solve([1, 1, *[0] * 14])) == []


def test_clues_are_honoured_and_wrong_numbers_can_be_replaced() -> None:
    """A clue cannot be changed, not even to itself; a repeated number is refused; a wrong number earns nothing."""
    env = sudoku(blanks=8, turns=50)
    level = env.level
    clue = next(i for i, v in enumerate(level.clues) if v)
    blank = next(i for i, v in enumerate(level.clues) if not v)
    for value in range(5):
        assert not env.play(f"{clue // 4 + 1} {clue % 4 + 1} {value}")
    where = f"{blank // 4 + 1} {blank % 4 + 1}"
    seen = next(env.grid[j] for j in peers(4)[blank] if env.grid[j])
    assert not env.play(f"{where} {seen}") and not env.play(f"{where} 0") and not env.play(f"{where} 5")
    assert not env.play("0 1 1") and not env.play("5 1 1")
    assert env.grid == level.clues and env.measure() == 0
    assert env.play(f"{where} {level.answer[blank]}") and env.measure() == pytest.approx(1 / 8)
    assert env.play(f"{where} 0") and env.measure() == 0 and env.grid == level.clues


def test_a_wrong_number_that_fits_is_accepted_and_does_not_solve() -> None:
    """The grid must be right, not only full."""
    for i in range(20):
        env = sudoku(i, blanks=8)
        wrong = [m for m in env.legal_moves() if m not in env.solution()]
        if wrong:
            assert env.play(wrong[0]) and env.measure() == 0
            moves = env.solution()
            assert moves[0] == f"{wrong[0][:3]} 0", "out first, then the right ones"
            assert all(env.play(move) for move in moves) and env.solved
            return
    raise AssertionError("no level had a number that fits and is wrong")


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("1 2 3", ["1 2 3"]), ("1 2 3.", ["1 2 3"]), ("r1c2=3", ["1 2 3"]), ("R1 C2: 3", ["1 2 3"]),
        ("1 2 3, 4 4 1\n2 2 2", ["1 2 3", "4 4 1", "2 2 2"]), ("123", None), ("1 2", None), ("1 2 3 4", None),
        ("row 1", None), ("", None), ("1,2,3", None),
    ],
)  # fmt: skip
def test_replies_are_read_strictly(text: str, moves: list[str] | None) -> None:
    """Row, column, number; several are separated by commas or lines."""
    assert sudoku().read(text) == moves


def test_files_are_read_and_set_size_and_blanks() -> None:
    """One puzzle a line, comments and remarks ignored."""
    lines = read_lines("\n# remark\n1.3..4.12..3.1.2  easy\n" + "." * 80 + "7\n")
    assert [len(line) for line in lines] == [16, 81] and lines[0] == "1030040120030102"
    with pytest.raises(ConfigError, match=r"line 1 of env.file is '12'; expected 16 or 81"):
        read_lines("12\n")
    seen = {sudoku(i, file=str(FILE), holdout=False).difficulty["size"] for i in range(20)}
    assert seen == {4, 9}


def test_a_file_puzzle_without_one_solution_is_refused(tmp_path: Path) -> None:
    """Progress could not be measured, so it is refused."""
    (tmp_path / "many.txt").write_text("." * 16)
    with pytest.raises(ConfigError, match="no solution or several"):
        sudoku(file=str(tmp_path / "many.txt"), holdout=False)


def test_a_puzzle_that_is_solved_already_is_refused(tmp_path: Path) -> None:
    (tmp_path / "full.txt").write_text("1234341221434321\n")
    with pytest.raises(ConfigError, match="already solved; expected blanks"):
        sudoku(file=str(tmp_path / "full.txt"), holdout=False)


def test_known_puzzles_are_solved_as_published(samples: Path) -> None:
    """Norvig's lists: every published solution, and that it is the only one."""
    rows = [json.loads(line) for line in (samples / "sudoku" / "sudoku.jsonl").read_text().splitlines()]
    for row in random.Random(0).sample([r for r in rows if r["search_nodes"] < 300], 30):
        answer = only_solution([int(c) if c != "." else 0 for c in row["puzzle"]])
        assert answer is not None and "".join(map(str, answer)) == row["solution"]

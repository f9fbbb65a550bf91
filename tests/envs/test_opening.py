"""Exploring starts: which games of a board begin after random moves, and with how many."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from interplay.envs import Env, make, sample_task

BOARDS: dict[str, dict[str, Any]] = {"tictactoe": {}, "connect_four": {"columns": 4, "rows": 3, "line": 3}}
both_boards = pytest.mark.parametrize("name", sorted(BOARDS))


def begun(name: str, index: int, split: str = "train", **options: Any) -> Env:
    return make(sample_task(name, {**BOARDS[name], **options}, split, index))


def marks(env: Env) -> int:
    board, _, _ = env.state().rpartition("\n")
    return sum(mark in "XO" for mark in board)


@both_boards
def test_training_games_begin_after_zero_to_that_many_moves(name: str) -> None:
    games = [begun(name, i, opening=4) for i in range(400)]
    assert all(game.observe() for game in games), "no opening ends the game"
    counts = Counter(map(marks, games))
    assert set(counts) == {0, 1, 2, 3, 4}
    assert all(50 < count < 110 for count in counts.values()), "every number of moves is equally likely"
    assert {role for game in games for role in game.observe()} == {"X", "O"}, "either seat may have to begin"
    assert len({game.state() for game in games}) > 100, "the positions are different"


@both_boards
def test_an_opening_stops_before_it_ends_the_game(name: str) -> None:
    games = [begun(name, i, opening=30) for i in range(200)]
    assert all(game.observe() for game in games)
    assert max(map(marks, games)) >= 7


@both_boards
def test_all_episodes_of_a_task_begin_in_the_same_position(name: str) -> None:
    for i in range(20):
        assert begun(name, i, opening=6).state() == begun(name, i, opening=6).state()


@both_boards
@pytest.mark.parametrize("split", ["validation", "test"])
def test_evaluations_play_whole_games(name: str, split: str) -> None:
    assert {marks(begun(name, i, split, opening=6)) for i in range(40)} == {0}


@both_boards
def test_by_default_training_plays_whole_games_too(name: str) -> None:
    assert {marks(begun(name, i)) for i in range(40)} == {0}


def test_both_players_are_told_the_rules_after_an_opening_with_memory() -> None:
    games = [begun("tictactoe", i, opening=4, memory=True) for i in range(20)]
    for game in games:
        for _ in range(2):
            for role, seen in game.observe().items():
                assert seen.messages[0].role == "system", "its first prompt has the rules"
                game.step({role: seen.legal[0]})
        for seen in game.observe().values():
            assert seen.messages[0].role == "user", "later prompts only have the news"
    assert max(map(marks, games)) > 4

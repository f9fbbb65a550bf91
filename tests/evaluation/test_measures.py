"""pass@k compared with enumeration, and what counts as a success."""

from __future__ import annotations

from itertools import combinations
from math import isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interplay.config import parse
from interplay.evaluation.measures import by_task, paired, pass_at_k, passed, per_task, verdict
from interplay.types import Episode, Rewards, Task

RECIPE: dict[str, Any] = {
    "name": "t", "env": {"name": "plan_path"}, "policies": {"p": {"base": "tiny"}}, "seats": "p",
    "algorithm": {"name": "grpo"}, "eval": {"opponents": ["team"], "success": "solved"},
}  # fmt: skip


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_of_k(games: list[bool], k: int) -> None:
    """All ways to choose k of the n games are tried."""
    if k > len(games):
        with pytest.raises(ValueError, match=f"needs at least {k} games"):
            pass_at_k(len(games), sum(games), k)
        return
    chosen = [any(c) for c in combinations(games, k)]
    assert isclose(pass_at_k(len(games), sum(games), k), sum(chosen) / len(chosen), abs_tol=1e-12)


def game(task: str, solved: float, replica: int = 0, error: str | None = None) -> Episode:
    return Episode(
        f"{task}#{replica}", Task(task, "plan_path", 0), replica, {"planner": "p", "actor": "p"}, [],
        Rewards.team("solved", solved) + Rewards.agent("format", {"actor": -0.5}), error=error,
    )  # fmt: skip


GAMES = [
    game("a", 1, 0),
    game("a", 0, 1),
    game("b", 0, 0),
    game("b", 0, 1),
    game("c", 1, 0, "EngineError: x"),
    game("c", 1, 1),
]


def test_pass_at_k_over_tasks_leaves_failures_out() -> None:
    """a: one of two, b: none of two, c: one game is left, so it says nothing about k = 2."""
    one, two = passed(parse(RECIPE), GAMES, "team", 2)
    assert (one.k, one.share.value, one.tasks) == (1, 0.5, 3)
    assert (two.k, two.share.value, two.tasks) == (2, 0.5, 2)
    assert one.share.low <= 0.5 <= one.share.high
    none = passed(parse(RECIPE), [game("a", 0), game("b", 0)], "team", 1)[0].share
    assert none.value == none.low == 0.0 < none.high, "nothing seen is not nothing possible"


def test_success_is_what_the_reward_adds_up_to() -> None:
    """In a game that pays card by card the sum counts, and eval.goal says how much is a success."""
    hanabi = {**RECIPE, "env": {"name": "hanabi"}, "eval": {"opponents": ["team"], "success": "score", "goal": 3.0}}
    episode = game("a", 0)
    for points, won in [(1, False), (2, False), (3, True)]:
        episode.rewards = Rewards.team("score", 1.0)
        for _ in range(points - 1):
            episode.rewards += Rewards.team("score", 1.0)
        assert verdict(parse(hanabi), episode, "team").won is won


def test_a_team_scores_the_mean_of_its_seats() -> None:
    assert verdict(parse(RECIPE), game("a", 1), "team") == (True, False, 0.75)
    rows = per_task(parse(RECIPE), GAMES, "team")
    assert [(r.task, r.games, r.won) for r in rows] == [("a", 2, 1), ("b", 2, 0), ("c", 1, 1)]
    assert list(by_task(GAMES)) == ["a", "b", "c"] and len(by_task(GAMES)["c"]) == 1


def test_differences_are_paired_by_task() -> None:
    """Tasks that only one side has played do not count."""
    solved = lambda e: sum(r.value or 0 for r in e.rewards if r.name == "solved")  # noqa: E731
    gap = paired([game("a", 1), game("b", 1), game("x", 0)], [game("b", 0), game("a", 1), game("y", 1)], solved)
    assert gap is not None and gap.value == 0.5
    assert paired([game("a", 1)], [game("b", 1)], solved) is None

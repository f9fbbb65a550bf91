"""Proposer–solver: the form is strict, the program marks answers, and tasks of medium difficulty pay most."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from interplay.envs import SPLITS, make, sample_task
from interplay.envs.games.proposer_solver import Expression, ProposerSolver
from interplay.types import Level, Rewards


def game(index: int = 0, split: str = "train", **options: Any) -> ProposerSolver:
    env = make(sample_task("proposer_solver", options, split, index))
    assert isinstance(env, ProposerSolver)
    return env


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2", 3), ("7 // 2 * (3 - 5)", -6), ("(8 % 5)*999", 2997), (" 2*3 ", 6),
        ("7", None), ("1 / 2", None), ("2 ** 9", None), ("1000 + 1", None), ("1 // 0", None), ("-3 + 1", None),
        ("1 + x", None), ("print(1)", None), ("1 +", None), ("1 + 2\n3 + 4", None), ("((((1))))", None),
        ("1 + 02", None), ("(" * 90 + "1 + 1" + ")" * 90, 2), ("1 + 2 # ok", None),
    ],
)  # fmt: skip
def test_expressions_are_read_strictly(text: str, value: int | None) -> None:
    """Whole numbers and five operators; anything else is not a task, and nothing is ever executed."""
    found = Expression.of(text)
    assert (found.value if found else None) == value


@pytest.mark.parametrize(("right", "pays"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 0.5), (4, 0.0)])
def test_the_frontier_pays_most(right: int, pays: float) -> None:
    """1 − |2p − 1| for the proposer; the solver is rewarded for each attempt separately."""
    env = game()
    env.step({"proposer": env.propose(random.Random(0))})
    answer, seen = env.answer(), set()
    for i in range(4):
        seen.add(str(env.observe()["solver"]))
        (reward,) = env.step({"solver": answer if i < right else "12345678"})
        assert (reward.name, reward.level, reward.value) == ("right", Level.AGENT, float(i < right))
    assert len(seen) == 1, "no attempt knows of the others"
    assert not env.observe() and [(r.role, r.value) for r in env.outcome()] == [("proposer", pays)]


def test_a_task_must_contain_what_was_asked() -> None:
    """The asked number and operator, no more operators than allowed."""
    env = game()
    number, sign = env.number, env.operator
    assert env._checked(f"{number} {sign} 5") == f"{number} {sign} 5"
    assert env._checked(f"{number + 1 if number < 999 else 2} {sign} 5") is None
    other = "+" if sign != "+" else "-"
    assert env._checked(f"{number} {other} 5") is None
    assert env._checked(f"{number} {sign} 5 + 1 + 1 + 1 + 1") is None


def test_malformed_tasks_end_it_and_earn_nothing() -> None:
    """promise 8: an echo of the prompt, or prose, is not a task: −1, no frontier reward, and the solver is not
    asked."""
    env = game()
    prompt = "\n".join(m.content for m in env.observe()["proposer"].messages)
    for text in (prompt, "", "What is 2 + 2?"):
        twin = env.fork()
        assert [(r.name, r.level, r.value) for r in twin.step({"proposer": text})] == [("illegal", Level.PROCESS, -1.0)]
        assert not twin.observe() and [r.value for r in twin.outcome()] == [0.0]


@pytest.mark.parametrize("kind", ["arithmetic", "grid"])
def test_the_solver_cannot_win_by_echoing(kind: str) -> None:
    """promise 8: repeating the task, or giving several answers at once, is not an answer."""
    for i in range(10):
        env, total = game(i, kind=kind), Rewards()
        env.step({"proposer": env.propose(random.Random(i))})
        answer = env.answer()
        prompt = "\n".join(m.content for m in env.observe()["solver"].messages)
        for text in (prompt, env.posed or "", f"It is {answer}", f"{answer} or 7"):
            total += env.step({"solver": text})
        assert sum(r.value or 0.0 for r in total if r.name == "right") == 0
        assert sum(r.name == "illegal" for r in total) == 4


@pytest.mark.parametrize("most", [1, 4])
def test_no_constant_answers_the_tasks_of_the_scripted_proposer(most: int) -> None:
    """The chance of every answer, computed from all numbers, operators and operands that `propose` draws: the best
    constant earns less than 0.01 above a number from 1 to 200 drawn at random, in four attempts together."""
    numbers, chance = np.arange(2, 1000), np.zeros(1_100_000)
    for of in (np.add, np.subtract, np.multiply, np.floor_divide, np.mod):
        operands = np.arange(2, 6 if of is np.floor_divide else 1000)
        values, counts = np.unique(of.outer(numbers, operands), return_counts=True)
        chance[values + 1000] += counts / counts.sum() / 5
    ends, digits = np.zeros(1), np.r_[0.0, np.full(9, 1 / 9)]
    for terms in range(most):  # up to most - 1 further numbers from 1 to 9 are added
        sum_of = np.ones(1)
        for _ in range(terms):
            sum_of = np.convolve(sum_of, digits)
        ends = np.r_[ends, np.zeros(len(sum_of) - len(ends))] + sum_of / most
    chance = np.convolve(chance, ends)
    drawn = Counter[int]()
    for i in range(4000):
        env = game(i, most=most)
        env.step({"proposer": env.propose(random.Random(i))})
        drawn[int(env.answer())] += 1
    assert all(chance[value + 1000] > 0 for value in drawn), "the enumeration leaves out what is drawn"
    often = sum(drawn[value] for value in range(1, 201)) / 4000
    assert abs(often - chance[1001:1201].sum()) < 4 * math.sqrt(often / 4000)
    assert 4 * (chance.max() - chance[1001:1201].mean()) < 0.01


def test_digits_of_other_scripts_are_no_answer() -> None:
    """Only 0 to 9 are digits in this game, as in the tasks that are posed."""
    env = game()
    env.step({"proposer": f"{env.number} {env.operator} 1"})
    assert env._right(env.answer()) is True
    assert env._right(env.answer().translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))) is None


def test_a_grid_must_be_in_the_form_and_have_a_way() -> None:
    """One start where asked, one goal, the asked wall, and a way; every way that arrives is right."""
    env = game(kind="grid", most=3)
    env.start, env.wall = 0, 4
    good = "S..\n.#.\n..G"
    assert env._checked(good) == good and env._checked("S . .\n. # .\n. . G") == good
    for bad in (
        "S..\n...\n..G",
        ".S.\n.#.\n..G",
        "S.#\n.##\n##G",
        "S..\n.#.\n...",
        "S..\n.#G\n..G",
        "S..\n.#.",
        "S..G\n.#..\n....",
    ):
        assert env._checked(bad) is None, bad
    env.step({"proposer": good})
    assert [env._right(t) for t in ("RRDD", "D D R R", "R L R R D D", "RR", "RDRD", "RRDDD", "here", "R" * 99)] == [
        True, True, True, False, False, False, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"kind": "grid"}, {"kind": "grid", "most": 3}])
def test_splits_never_share_what_is_asked_for(options: dict[str, Any]) -> None:
    """promise 8: what is asked of the task belongs to one split."""
    seen = {s: {str(game(i, s, **options).observe()) for i in range(200)} for s in SPLITS}
    assert all(len(found) > 5 for found in seen.values())
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))


def test_cut_short_it_is_not_scored() -> None:
    """None is not zero: a proposal without an attempt has no success rate."""
    env = game()
    env.step({"proposer": env.propose(random.Random(0))})
    assert [r.value for r in env.outcome()] == [None]

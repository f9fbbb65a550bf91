"""Constant replies earn exactly what random ones earn, by enumeration of what is hidden.

`benchmarks/cheats.py` plays tasks until a gain of 0.01 can be told from chance, which takes too long where wins and
losses vary much. In these environments the hidden answer is drawn with equal probabilities, so all of its values can be
played instead. `dialogue/test_repair.py` and `test_proposer_solver.py` do the same for theirs.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from interplay.envs import Env, make, outcome_of, sample_task
from interplay.envs.games.grid import DIRECTIONS
from interplay.envs.games.hearing import Hearing
from interplay.envs.games.social_deduction import SocialDeduction
from interplay.envs.tasks.nli import NLI
from interplay.rewards.label import LABELS
from interplay.types import Role


def paid(env: Env, said: dict[Role, str], role: Role) -> float:
    """What `role` earns if everybody says the same again and again."""
    total = 0.0
    while seen := env.observe():
        total += sum(r.value or 0.0 for r in env.step({r: said[r] for r in seen}) if r.role in (role, None))
    return total + sum(r.value or 0.0 for r in outcome_of(env) if r.role in (role, None))


@pytest.mark.parametrize("options", [{}, {"brief": True}, {"agents": 3}], ids=str)
def test_no_label_of_nli_is_a_better_guess(options: dict[str, Any]) -> None:
    form = "{}" if options.get("brief") else "Answer: {}"
    task = sample_task("nli", options)
    roles = make(task).roles
    earned = Counter[str]()
    for right, *said in itertools.product(LABELS, repeat=1 + len(roles)):
        env = make(task)
        assert isinstance(env, NLI)
        env.row = {**env.row, "label": right}
        earned[said[0]] += paid(env, {r: form.format(s) for r, s in zip(roles, said, strict=True)}, roles[0])
    assert len(earned) == 3 and earned[LABELS[0]] > 0
    assert list(earned.values()) == pytest.approx([earned[LABELS[0]]] * 3)


def test_the_labels_of_nli_are_drawn_with_equal_chances() -> None:
    count = 3000
    drawn = Counter(make(sample_task("nli", {}, "test", i)).row["label"] for i in range(count))  # type: ignore[attr-defined]
    spread = (count / 3 * 2 / 3) ** 0.5
    assert all(abs(drawn[label] - count / 3) < 5 * spread for label in LABELS)


def test_no_move_of_hearing_is_a_better_guess() -> None:
    task = sample_task("hearing", {"length": 1})
    earned = Counter[str]()
    for order, said in itertools.product(DIRECTIONS, repeat=2):
        env = make(task)
        assert isinstance(env, Hearing)
        env.order = (order,)
        earned[said] += paid(env, {"listener": said}, "listener")
    assert earned == dict.fromkeys(DIRECTIONS, 2.0)  # each is right once: followed and heard


@pytest.mark.parametrize("role", ["p0", "p3"])
def test_no_place_in_the_lists_of_the_spy_game_is_a_better_guess(role: Role) -> None:
    """Every spy, every secret and every vote of the others; the player takes the same place in each list."""
    deal = make(sample_task("social_deduction", {"words": 4}))
    assert isinstance(deal, SocialDeduction)
    deal.clues = ("hm",) * 4
    places = 3  # of the three other players, and of the words that a spy who is found out can name
    earned = []
    for place in range(places):
        total = 0.0
        for spy, secret in itertools.product(deal.roles, deal.words):
            start = deal.fork()
            start.spy, start.secret = spy, secret
            seen = start.observe()
            others = [r for r in seen if r != role]
            for votes in itertools.product(*(seen[r].legal for r in others)):
                env = start.fork()
                env.step({**dict(zip(others, votes, strict=True)), role: seen[role].legal[place]})
                if asked := env.observe():
                    ((guesser, word),) = asked.items()
                    env.step({guesser: word.legal[place if guesser == role else 0]})
                total += sum(r.value or 0.0 for r in env.outcome() if r.role == role)
        earned.append(total)
    assert len(set(earned)) == 1  # sums of whole numbers are exact


def test_the_spy_and_the_place_of_the_secret_are_drawn_with_equal_chances() -> None:
    count, spies, listed = 4000, Counter[Role](), Counter[int]()
    for i in range(count):
        env = make(sample_task("social_deduction", {"words": 4}, "test", i))
        assert isinstance(env, SocialDeduction)
        spies[env.spy] += 1
        listed[env.listed("p3").index(env.secret)] += 1
    for drawn in (spies, listed):
        assert len(drawn) == 4 and all(abs(n - count / 4) < 5 * (count * 3 / 16) ** 0.5 for n in drawn.values())

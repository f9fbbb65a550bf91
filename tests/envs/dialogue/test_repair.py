"""Repair: the gold score is exact, the example leaves no doubt, and breakers keep their styles."""

from __future__ import annotations

import itertools
import random

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.envs.dialogue.repair import LENGTH, OPERATIONS, Repair, changed, changes, passes, ran
from interplay.envs.env import outcome_of


def made(index: int = 0, **options: object) -> Repair:
    env = envs.make(envs.sample_task("repair", options, index=index))
    assert isinstance(env, Repair)
    return env


def paid(env: Repair, reply: str) -> dict[str | None, float]:
    role = env.acting
    return {r.role: r.value or 0.0 for r in env.step({role: reply}) if r.name == "gold"}


def by_hand() -> Repair:
    env = made()
    env.right, env.start = ("+1", "*2", "-1"), 5
    return env


def test_a_bug_is_mended_by_naming_its_place_and_the_operation() -> None:
    env = by_hand()
    assert paid(env, "2+3") == {"breaker": 0.5}
    assert env.observe()["learner"].messages[0].content == "5 6 2 1 +1 +3 -1"
    assert paid(env, "2*2") == {"learner": 1.0, "breaker": 0.0}
    assert paid(env, "3+1") == {"breaker": 0.5}
    assert paid(env, "3+2") == {"learner": 0.25, "breaker": 0.5} and not env.observe()
    assert [r.value for r in outcome_of(env) if r.name == "solved"] == [0.5]


def test_another_place_the_same_program_and_no_reply_are_worth_less_than_nothing() -> None:
    for reply in ("1+2", "2+3", "hm"):
        env = by_hand()
        paid(env, "2+3")
        assert paid(env, reply)["learner"] == -0.25


def test_a_breaker_that_plants_nothing_loses_and_the_learner_still_has_a_bug() -> None:
    for reply in ("2*2", "nothing"):
        env = by_hand()
        assert paid(env, reply) == {"breaker": -0.25}
        assert env.broken is not None and env.broken != env.right


def test_exactly_one_reply_passes_the_hidden_tests_and_the_example_tells_which() -> None:
    for index in range(40):
        env = made(index, team="single")
        assert env.broken is not None
        good = [c for c in changes() if passes(changed(env.broken, c), env.right)]
        seen = [c for c in changes() if ran(changed(env.broken, c), env.start) == ran(env.right, env.start)]
        assert len(good) == 1 and seen == good
        assert paid(env, good[0]) == {"learner": 1.0} and env.best() == 2.0


def test_a_fork_plays_on_by_itself_and_a_new_seed_draws_other_bugs() -> None:
    env = made(team="single", rounds=8)
    same, other = env.fork(), [env.fork(seed) for seed in range(20)]
    for twin in (env, same, *other):
        twin.step({"learner": "1+1"})
    assert same.bugs == env.bugs and len({t.bugs for t in other}) > 1


@pytest.mark.parametrize("style", ["early", "late", "subtle", "hunter"])
def test_a_breaker_keeps_its_style(style: str) -> None:
    for index in range(12):
        env, bot, rng = made(index, rounds=4), make_bot(f"breaker:{style}", "repair"), random.Random(index)
        while env.observe():
            env.step({env.acting: bot.act(env, env.acting, rng)})
        assert all(changed(env.right, bug) != env.right for bug in env.bugs)
        places = [bug[0] for bug in env.bugs]
        if style in ("early", "late"):
            assert set(places) == {"1" if style == "early" else "3"}
        if style == "subtle":
            steps = [OPERATIONS.index(b[1:]) - OPERATIONS.index(env.right[int(b[0]) - 1]) for b in env.bugs]
            assert {s % len(OPERATIONS) for s in steps} == {1}
        if style == "hunter":
            for before, after, ok in zip(places, places[1:], env.mended, strict=False):
                assert ok or before == after


def test_a_replayed_breaker_does_not_react() -> None:
    said = []
    for reply in ("1+1", "3*2"):
        env, bot = made(), make_bot("replay:breaker:hunter", "repair")
        while env.observe():
            env.step({env.acting: bot.act(env, "breaker", random.Random(1)) if env.acting == "breaker" else reply})
        said.append(env.bugs)
    assert said[0] == said[1]


def test_no_constant_reply_gains_anything_by_enumeration() -> None:
    """Over all programs and all bugs, every constant reply earns exactly what a random one earns."""
    env = made(team="single", rounds=8)
    earned = []
    for reply in changes():
        total = 0.0
        for right in itertools.product(OPERATIONS, repeat=LENGTH):
            for bug in (b for b in changes() if changed(right, b) != right):
                env.right, env.bugs, env.mended, env.broken = right, (bug,), (), changed(right, bug)
                total += paid(env, reply)["learner"]
        earned.append(total)  # sums of quarters are exact
    assert len(set(earned)) == 1

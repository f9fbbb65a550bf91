"""Retrieval: citations are checked, finders keep their styles, and the gold score is exact."""

from __future__ import annotations

import random

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.envs.dialogue.retrieval import Retrieval, answers
from interplay.envs.env import outcome_of


def made(index: int = 0, **options: object) -> Retrieval:
    env = envs.make(envs.sample_task("retrieval", options, index=index))
    assert isinstance(env, Retrieval)
    return env


def reported(env: Retrieval, *said: str) -> Retrieval:
    for passage in said:
        env.step({env.acting: passage})
    return env


def gold(env: Retrieval, answer: str) -> float:
    env.step({"learner": answer})
    return next(r.value or 0.0 for r in outcome_of(env) if r.name == "gold")


def test_the_right_land_with_both_passages_is_worth_one_and_citations_are_checked() -> None:
    def fresh() -> Retrieval:
        env = made()
        env.lives, env.lies, env.asked = {"A": "4", "B": "5", "C": "6"}, {"4": "R", "5": "S", "6": "T"}, "A"
        return reported(env, "A4", "A5", "4R", "5S")  # finder1 is right; finder2 lies, then says what is true and idle

    worth = {answer: gold(fresh(), answer) for answer in answers()}
    assert worth["R13"] == 1.0 == max(worth.values()) and list(worth.values()).count(1.0) == 1
    assert worth["S13"] == 0.5 and worth["R12"] == 0.5 and worth["S24"] == -0.5
    env = fresh()
    assert gold(env, "R99") == -0.5 and env.answer == ""


@pytest.mark.parametrize("style", ["helpful", "idle", "liar"])
def test_a_finder_keeps_its_style(style: str) -> None:
    for index in range(12):
        env, bot, rng = made(index), make_bot(f"finder:{style}", "retrieval"), random.Random(index)
        while env.acting != "learner":
            env.step({env.acting: bot.act(env, env.acting, rng)})
        true = [p in env.true for p in env.reported]
        assert all(true) if style != "liar" else not any(true)
        if style == "helpful":
            assert set(env.reported) == env.needed


def test_alone_the_learner_is_given_what_it_needs() -> None:
    for index in range(12):
        env = made(index, team="single")
        assert env.needed <= set(env.reported) <= env.true and len(env.reported) == 4
        assert max(gold(made(index, team="single"), answer) for answer in answers()) == 1.0

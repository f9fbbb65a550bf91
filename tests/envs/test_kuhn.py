"""Kuhn poker: every deal and every sequence of bets pays as the rules say, and cards stay hidden."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games.kuhn import CARDS, ENDINGS, Kuhn
from interplay.types import Level, Role


def new(cards: str | None = None, **options: Any) -> Kuhn:
    env = make(sample_task("kuhn", options))
    assert isinstance(env, Kuhn)
    if cards:
        env.cards = tuple(cards)
    return env


def play(env: Kuhn, *actions: str) -> Kuhn:
    for action in actions:
        (role,) = env.observe()
        env.step({role: action})
    return env


def payoff(env: Kuhn) -> dict[Role | None, float | None]:
    return {r.role: r.value for r in env.outcome()}


@pytest.mark.parametrize(
    ("betting", "winner", "chips"),
    [
        ("pass pass", "high", 1),
        ("pass bet pass", "p1", 1),
        ("pass bet bet", "high", 2),
        ("bet pass", "p0", 1),
        ("bet bet", "high", 2),
    ],
)
@pytest.mark.parametrize("cards", ["JQ", "JK", "QJ", "QK", "KJ", "KQ"])
def test_every_line_of_every_deal_pays_as_the_rules_say(cards: str, betting: str, winner: str, chips: int) -> None:
    """promise 8: the whole game with its thirty endings; betting ends exactly there."""
    env = play(new(cards), *betting.split())
    if winner == "high":
        winner = "p0" if CARDS.index(cards[0]) > CARDS.index(cards[1]) else "p1"
    assert not env.observe()
    assert payoff(env) == {r: chips if r == winner else -chips for r in ("p0", "p1")}
    assert {(r.name, r.level) for r in env.outcome()} == {("payoff", Level.AGENT)}


def test_a_game_agrees_with_openspiel() -> None:
    """promise 8: OpenSpiel's recorded game: cards 1 and 2, pass, pass, returns -1 and 1."""
    env = new(CARDS[1] + CARDS[2])
    for _ in range(2):
        ((_, o),) = env.observe().items()
        assert o.legal == ("pass", "bet")
        play(env, "pass")
    assert payoff(env) == {"p0": -1, "p1": 1} and ("pass", "pass") in ENDINGS


def test_deals_are_uniform_over_tasks() -> None:
    """promise 8: randomness comes from the task's seed."""
    deals = Counter(make(sample_task("kuhn", {}, index=i)).state()[:10] for i in range(1_200))
    assert len(deals) == 6 and min(deals.values()) > 150


@pytest.mark.parametrize("brief", [False, True])
def test_a_player_sees_its_card_and_the_betting_and_no_more(brief: bool) -> None:
    """promise 8: hidden information never reaches an observation; it is the same for any card of the other player."""
    for other in "JK":
        env = play(new("Q" + other, brief=brief), "pass", "bet")
        (o,) = env.observe().values()
        text = o.messages[-1].content
        whole = "You are p0 and hold Q. So far: p0 pass, p1 bet. Your move?"
        assert text == ("Q pass bet" if brief else whole)
        assert o.fresh


def test_a_redeal_draws_the_others_card_from_both_that_are_left() -> None:
    """promise 8: what is hidden is drawn again, uniformly, and the own card stays."""
    env, rng = play(new("QK"), "pass"), random.Random(0)
    assert Counter(env.redeal("p1", rng).cards for _ in range(400)).keys() == {("Q", "K"), ("J", "K")}
    count = Counter(env.redeal("p0", rng).cards for _ in range(1_000))
    assert count.keys() == {("Q", "J"), ("Q", "K")} and min(count.values()) > 400
    assert env.cards == ("Q", "K")


@pytest.mark.parametrize(
    ("before", "reply", "lost"), [((), "raise", 1), (("bet",), "", 1), (("pass", "bet"), "bet bet", 1)]
)
def test_an_illegal_reply_folds(before: tuple[str, ...], reply: str, lost: int) -> None:
    """promise 8: even with the best card; it never loses less than folding would."""
    env = play(new("KQ" if len(before) != 1 else "QK"), *before)
    (role,) = env.observe()
    rewards = env.step({role: reply})
    assert [(r.name, r.level, r.role, r.value) for r in rewards] == [("illegal", Level.PROCESS, role, -1.0)]
    assert not env.observe() and payoff(env)[role] == -lost and sum(v or 0 for v in payoff(env).values()) == 0


def test_case_and_full_stops_are_forgiven_and_a_cut_game_pays_nothing() -> None:
    """promise 8: it is defined what counts as a legal reply, and outcome() works at any time."""
    env = new()
    assert not env.step({"p0": " Bet.\n"})
    assert payoff(env) == {"p0": 0.0, "p1": 0.0}

"""Leduc hold'em: legal moves, chips and showdowns follow the rules; the size of the whole tree is the known one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.envs.games.leduc import Leduc
from interplay.types import Level, Role


def new(cards: str | None = None, **options: Any) -> Leduc:
    env = make(sample_task("leduc", options))
    assert isinstance(env, Leduc)
    if cards:
        env.cards = tuple(cards)
    return env


def play(env: Leduc, *actions: str, public: str | None = None) -> Leduc:
    for action in actions:
        (role,) = env.observe()
        env.step({role: action})
        if env.public and public:
            env.public = public
    return env


def payoff(env: Leduc) -> dict[Role | None, float | None]:
    return {r.role: r.value for r in env.outcome()}


def legal(env: Leduc) -> str:
    ((_, o),) = env.observe().items()
    return " ".join(o.legal)


def test_what_is_legal_when() -> None:
    """promise 8: no fold without a raise, no third raise in a round, p0 acts first in both rounds."""
    env = new()
    assert legal(env) == "call raise" and list(env.observe()) == ["p0"]
    assert legal(play(env, "raise")) == "fold call raise"
    assert legal(play(env, "raise")) == "fold call"
    play(env, "call")
    assert env.chips == (5, 5) and env.public
    assert legal(env) == "call raise" and list(env.observe()) == ["p0"], "the raises of round one are forgotten"
    assert legal(play(env, "call")) == "call raise" and list(env.observe()) == ["p1"]
    play(env, "raise", "raise", "call")
    assert env.chips == (13, 13) and not env.observe()


@pytest.mark.parametrize(
    ("cards", "public", "first"),
    [("JK", "Q", -1), ("KJ", "Q", 1), ("JK", "J", 1), ("KJ", "J", -1), ("QQ", "K", 0), ("KQ", "K", 1)],
)
def test_a_pair_wins_then_the_higher_card_and_equals_share(cards: str, public: str, first: int) -> None:
    """promise 8: showdowns, for one chip each and for thirteen."""
    small = play(new(cards), *["call"] * 4, public=public)
    assert payoff(small) == {"p0": first, "p1": -first}
    large = play(new(cards), "raise", "raise", "call", "raise", "raise", "call", public=public)
    assert payoff(large) == {"p0": 13 * first, "p1": -13 * first}
    assert {(r.name, r.level) for r in large.outcome()} == {("payoff", Level.AGENT)}


def test_who_folds_loses_what_it_put_in() -> None:
    """promise 8: whatever the cards."""
    assert payoff(play(new("KJ"), "raise", "raise", "fold")) == {"p0": -3, "p1": 3}
    assert payoff(play(new("JK"), "call", "call", "raise", "fold")) == {"p0": 1, "p1": -1}


def test_the_public_card_comes_from_the_four_that_are_left() -> None:
    """promise 8: with the right probabilities, and drawn only when it is turned up: a fork with a seed may turn
    another."""
    env = new("JJ")
    count = Counter(play(env.fork(seed), "call", "call").public for seed in range(400))
    assert count.keys() == {"Q", "K"} and min(count.values()) > 150
    assert len({play(env.fork(), "call", "call").public for _ in range(5)}) == 1, "a plain fork has the same ahead"
    lone = Counter(play(new("JQ").fork(seed), "call", "call").public for seed in range(800))
    assert lone["K"] > 320 and min(lone["J"], lone["Q"]) > 140


def test_a_redeal_keeps_what_is_seen_and_counts_cards() -> None:
    """promise 8: with J in hand and K turned up, the other has J, Q, Q or K."""
    env, rng = play(new("JQ"), "call", "call", public="K"), random.Random(0)
    twins = [env.redeal("p0", rng) for _ in range(1_000)]
    assert {(t.cards[0], t.public) for t in twins} == {("J", "K")}
    count = Counter(t.cards[1] for t in twins)
    assert count["Q"] > 420 and min(count["J"], count["K"]) > 190
    assert env.cards == ("J", "Q")


@pytest.mark.parametrize("brief", [False, True])
def test_a_player_sees_its_cards_and_the_betting_and_no_more(brief: bool) -> None:
    """promise 8: hidden information never reaches an observation."""
    seen = set()
    for other in "JK":
        env = play(new("Q" + other, brief=brief), "call", "raise", "call", public="Q")
        seen.add(repr(env.observe()))
    assert len(seen) == 1
    text = env.observe()["p0"].messages[-1].content
    assert (text == "Q Q | call raise call | -") if brief else ("call raise call | -. Chips in: p0 3, p1 3" in text)


@pytest.mark.parametrize("reply", ["fold", "check", "raise 2", ""])
def test_an_illegal_reply_folds(reply: str) -> None:
    """promise 8: also a fold when there is no raise."""
    env = new("KQ")
    rewards = env.step({"p0": reply})
    assert [(r.name, r.level, r.role, r.value) for r in rewards] == [("illegal", Level.PROCESS, "p0", -1.0)]
    assert not env.observe() and payoff(env) == {"p0": -1, "p1": 1}

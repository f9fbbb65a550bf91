"""Negotiation: instances like those of the reference, a strict last line, private values, and shares that add up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interplay.envs import make, sample_task
from interplay.envs.games.negotiation import Negotiation, instances, pools, valuations, worth
from interplay.errors import ConfigError
from interplay.types import Level, Role

# The first instances of OpenSpiel's bargaining: pool, values of both, the best joint payoff.
REFERENCE = [
    ((1, 2, 3), ((8, 1, 0), (4, 0, 2)), 16),
    ((1, 4, 1), ((4, 1, 2), (2, 2, 0)), 14),
    ((2, 2, 1), ((1, 1, 6), (0, 4, 2)), 16),
]


def new(index: int = 0, **options: Any) -> Negotiation:
    env = make(sample_task("negotiation", options, index=index))
    assert isinstance(env, Negotiation)
    return env


def reference(which: int = 0, **options: Any) -> Negotiation:
    env = new(**options)
    env.pool, env.values, _ = REFERENCE[which]
    return env


def say(env: Negotiation, *replies: str) -> Negotiation:
    for reply in replies:
        (role,) = env.observe()
        env.step({role: reply})
    return env


def points(env: Negotiation) -> dict[Role | None, float | None]:
    assert {(r.name, r.level) for r in env.outcome()} == {("payoff", Level.AGENT)}
    return {r.role: r.value for r in env.outcome()}


def test_instances_are_those_of_the_reference() -> None:
    """promise 8: 5 to 7 items worth 10 to both, nothing that nobody wants, something that both want. The reference's
    instances are among them, with its best joint payoffs, and ours are as hard on average (15.12 there)."""
    for which, (pool, values, best) in enumerate(REFERENCE):
        assert pool in pools() and values in instances(pool)
        assert reference(which).best_joint() == best
    made = [new(i) for i in range(1_000)]
    for env in made:
        assert 5 <= sum(env.pool) <= 7 and min(env.pool) >= 1
        assert [worth(env.pool, v) for v in env.values] == [10, 10]
        both = list(zip(*env.values, strict=True))
        assert all(map(any, both)) and any(map(all, both))
    assert abs(sum(env.best_joint() for env in made) / 1_000 - 15.12) < 0.3
    assert len(Counter(env.pool for env in made)) == len(pools())


def test_the_optimum_is_the_best_gold_of_all_deals() -> None:
    """Every offer that can be made at once is played to its deal; both who offers and who accepts may be the role."""
    for index in range(3):
        gold: dict[Role, list[float]] = {"p0": [], "p1": []}
        for a, b, c in new(index, gold=True).splits():
            done = say(new(index, gold=True), f"offer {a} {b} {c}", "accept").outcome()
            assert not isinstance(done, Awaitable)
            for reward in done:
                if reward.name == "gold" and reward.role is not None:
                    gold[reward.role].append(reward.value or 0.0)
        assert {role: max(values) for role, values in gold.items()} == {r: new(index).optimum(r) for r in gold}


def test_a_deal_pays_each_its_share() -> None:
    """promise 8: the proposer keeps what it said, and the player who accepts gets the rest, in both directions."""
    env = say(reference(), "I need the book.\noffer 1 0 0", "accept")
    assert not env.observe() and points(env) == {"p0": 8.0, "p1": 6.0}
    env = say(reference(), "offer 1 2 3", "Too much!\nOffer 0 0 3.", "Fine.\n\n ACCEPT\n")
    assert not env.observe() and points(env) == {"p0": 10.0, "p1": 6.0}
    assert env.state().endswith("deal: p0 books 1, hats 2, balls 0, p1 books 0, hats 0, balls 3")


def test_without_a_deal_in_time_nobody_gets_anything() -> None:
    """promise 8: every episode ends."""
    env = say(reference(turns=3), "offer 1 2 3", "offer 1 2 3")
    assert "Turn 3 of 3" in env.observe()["p0"].messages[-1].content
    say(env, "offer 0 0 0")
    assert not env.observe() and points(env) == {"p0": 0.0, "p1": 0.0} and env.state().endswith("no deal")


@pytest.mark.parametrize(
    "reply",
    [
        "", "offer", "offer 1 1", "offer 1 1 1 1", "offer 2 0 0", "offer 0 0 4", "offer -1 0 0", "offer 1, 0, 0",
        "I offer 1 0 0", "offer 1 0 0\nDeal?", "accept or not", "accept", "offer 999999999999 0 0", "offer ² 0 0",
    ],
)  # fmt: skip
def test_an_illegal_reply_ends_it_without_a_deal(reply: str) -> None:
    """promise 8: no move on the last line, more than there is, or nothing to accept yet."""
    env = reference()
    rewards = env.step({"p0": reply})
    assert [(r.name, r.level, r.role, r.value) for r in rewards] == [("illegal", Level.PROCESS, "p0", -1.0)]
    assert not env.observe() and points(env) == {"p0": 0.0, "p1": 0.0}


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_move_or_illegal(reply: str) -> None:
    """promise 8: no reply raises an exception."""
    env = say(reference(), "offer 1 1 1")
    rewards = env.step({"p1": reply})
    assert bool(rewards) == (not env.deal and not env.observe())


def test_what_was_said_reaches_the_other_as_one_line() -> None:
    """promise 8: it is cut to 500 characters, so no text can look like an offer or fill a prompt."""
    env = say(reference(), "Hello!\nThey offer: you get everything.\noffer 1 2 0")
    rules, news = env.observe()["p1"].messages
    assert rules.role == "system" and news.content.split("\n") == [
        'They say: "Hello! They offer: you get everything."',
        "They offer: you get books 0, hats 0, balls 3, they keep books 1, hats 2, balls 0.",
        "Turn 2 of 10. Your reply?",
    ]
    say(env, "y" * 20_000 + "\noffer 0 2 3")
    (news,) = env.observe()["p0"].messages
    assert news.content.split("\n")[0] == f'They say: "{"y" * 500}"'


def test_the_values_of_the_other_are_hidden_and_drawn_again_by_a_redeal() -> None:
    """promise 8: what p0 sees does not depend on them; a redeal draws any values that fit the pool and one's own."""
    env, rng = say(reference(), "offer 1 0 0", "offer 1 2 3"), random.Random(0)
    twins = [env.redeal("p0", rng) for _ in range(300)]
    assert {repr(t.observe()) for t in twins} == {repr(env.observe())}
    assert {t.values[0] for t in twins} == {(8, 1, 0)}
    possible = {v for own, v in instances((1, 2, 3)) if own == (8, 1, 0)}
    assert {t.values[1] for t in twins} == possible and 1 < len(possible) < len(valuations((1, 2, 3)))
    assert env.values == REFERENCE[0][1]


def test_echoing_the_prompt_is_no_move() -> None:
    """promise 8: neither the rules with their examples nor the other's offer."""
    for before in ((), ("offer 1 0 0",), ("Take it.\noffer 1 0 0", "offer 0 0 1")):
        env = say(reference(), *before)
        ((role, o),) = env.observe().items()
        assert env.step({role: "\n".join(m.content for m in o.messages)}) and not env.observe()
        assert points(env) == {"p0": 0.0, "p1": 0.0}


def test_without_talk_every_move_is_listed_and_nothing_else_goes() -> None:
    """promise 8: legal lists are complete; text before the move is then illegal."""
    env = reference(talk=False)
    o = env.observe()["p0"]
    assert len(o.legal) == 2 * 3 * 4 and "offer 1 2 3" in o.legal and "accept" not in o.legal and o.phase == "offer"
    o = say(env, "offer 1 0 0").observe()["p1"]
    assert len(o.legal) == 25 and o.legal[-1] == "accept" and o.phase == "answer"
    assert env.step({"p1": "Fine.\naccept"}) and not env.observe()


def test_terse_prompts_have_the_same_numbers_and_need_talk_to_be_off() -> None:
    env = reference(talk=False, terse=True)
    assert [m.content for m in env.observe()["p0"].messages] == ["1 2 3 : 8 1 0", "turn 1"]
    heard = say(env, "offer 1 0 0").observe()["p1"].messages
    assert [m.content for m in heard] == ["1 2 3 : 4 0 2", "you 0 2 3 turn 2"]
    with pytest.raises(ConfigError, match=r"expected env\.talk = false"):
        new(terse=True)

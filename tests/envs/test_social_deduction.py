"""The spy: clues in turn, votes at once, a last word, and no hidden information is shown."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interplay.envs import SPLITS, make, sample_task
from interplay.envs.games.objects import LONGEST
from interplay.envs.games.social_deduction import SocialDeduction
from interplay.types import Role


def game(index: int = 0, split: str = "train", **options: Any) -> SocialDeduction:
    env = make(sample_task("social_deduction", options, split, index))
    assert isinstance(env, SocialDeduction)
    return env


def voting(env: SocialDeduction) -> SocialDeduction:
    while env.phase == "clue":
        (role,) = env.observe()
        assert not env.step({role: "hm"})
    return env


def wins(env: SocialDeduction) -> set[Role | None]:
    return {r.role for r in env.outcome() if r.value == 1.0}


def against(env: SocialDeduction, suspect: Role) -> dict[Role, str]:
    """Everybody votes for the suspect, who votes for somebody else."""
    other = next(r for r in env.roles if r != suspect)
    return {r: suspect if r != suspect else other for r in env.roles}


def test_everybody_speaks_in_turn_and_votes_at_once() -> None:
    """promise 8: `rounds` times around the table, then one joint decision."""
    env = game(rounds=2, players=5)
    spoken = []
    while env.phase == "clue":
        (role,) = env.observe()
        env.step({role: f"a clue {'abcdefghij'[len(spoken)]}"})
        spoken.append(role)
    assert spoken == [f"p{i}" for i in range(5)] * 2
    seen = env.observe()
    assert set(seen) == set(env.roles) and {o.phase for o in seen.values()} == {"vote"}
    assert all(role not in o.legal and len(o.legal) == 4 for role, o in seen.items())
    assert "p4: a clue j" in seen["p0"].messages[-1].content


def test_only_the_spy_does_not_see_the_secret() -> None:
    """promise 8: after a redeal the observer sees the same: another spy for a player, another secret for the spy."""
    rng = random.Random(0)
    for i in range(10):
        env = voting(game(i))
        for role, o in env.observe().items():
            assert (f"It is: {env.secret}." in str(o)) == (role != env.spy)
            deals = [env.redeal(role, rng) for _ in range(40)]
            assert all(d.observe()[role] == o for d in deals)
            if role == env.spy:
                assert len({d.secret for d in deals}) > 4 and {d.spy for d in deals} == {env.spy}
            else:
                assert {d.spy for d in deals} == set(env.roles) - {role} and {d.secret for d in deals} == {env.secret}


def test_who_alone_has_most_votes_is_found_out() -> None:
    """The others win by finding the spy; after a tie or a wrong vote the spy wins."""
    env = voting(game(last_word=False))
    innocent = [r for r in env.roles if r != env.spy]
    right, wrong, tie = env.fork(), env.fork(), env.fork()
    right.step(against(env, env.spy))
    assert wins(right) == set(innocent) and not right.observe()
    wrong.step(against(env, innocent[0]))
    assert wins(wrong) == {env.spy}
    votes = dict.fromkeys(innocent[:2], env.spy) | {innocent[2]: innocent[0], env.spy: innocent[0]}
    tie.step(votes)
    assert tie.found_out is None and wins(tie) == {env.spy}


@pytest.mark.parametrize("named", [True, False])
def test_the_last_word(named: bool) -> None:
    """A spy who was found out wins only by naming the secret."""
    env = voting(game())
    env.step(against(env, env.spy))
    (role,) = env.observe()
    assert role == env.spy and set(env.observe()[role].legal) == set(env.words)
    word = env.secret if named else next(w for w in env.words if w != env.secret)
    assert not env.step({role: f" {word.upper()}. "})
    assert (wins(env) == {env.spy}) == named and not env.observe()


def test_illegal_replies_are_heard_as_nothing_and_cost_a_win() -> None:
    """promise 8: a clue with a word in it, too long or empty; a vote for oneself or nobody; no word at the end."""
    env = game()
    for bad in (f"It is like a {env.words[0]}!", f"{env.words[1]}s", "x" * (LONGEST + 1), ""):
        (role,) = env.observe()
        assert [(r.name, r.role, r.value) for r in env.step({role: bad})] == [("illegal", role, -1.0)]
    assert env.clues == ("",) * 4 and "p0: (silence)" in str(env.observe()["p1"])
    votes = against(env, env.spy)
    loud = next(r for r in env.roles if r != env.spy)
    rewards = env.step(votes | {loud: loud})
    assert [(r.name, r.role) for r in rewards] == [("illegal", loud)] and env.found_out == env.spy
    assert [r.value for r in env.step({env.spy: "no idea"})] == [-1.0]
    assert env.spy not in wins(env)


def test_splits_never_share_a_table() -> None:
    """promise 8: the words and the secret, together, belong to one split."""
    seen = {s: {(g.words, g.secret) for g in (game(i, s, words=2) for i in range(300))} for s in SPLITS}
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))


def test_cut_short_nobody_has_won() -> None:
    """None is not zero."""
    assert {r.value for r in game().outcome()} == {None}


def test_the_place_of_a_word_is_no_clue_and_nobody_shares_an_order() -> None:
    """Similar to audit B1: a player who knows the secret could prove it by naming its place in a list that all saw."""
    orders = set()
    for index in range(20):
        env = game(index)
        for role in env.roles:
            words = voting(game(index)).observe()[role].messages[0].content.split("Words: ")[1].split(".")[0]
            orders.add((index, words))
        assert [r.name for r in env.step({"p0": f"number {env.words.index(env.secret) + 1}"})] == ["illegal"]
    assert len(orders) > 70  # of 80 orders of eight words

"""The OpenSpiel adapter compared with OpenSpiel, and our own games compared with OpenSpiel's."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyspiel
import pytest

from interplay import envs
from interplay.envs.check import check
from interplay.envs.env import Env
from interplay.errors import ConfigError
from interplay.evaluation.exploitability import exploitability, uniform
from interplay.types import Level, Rewards

FAST = (
    "kuhn_poker", "leduc_poker(players=3)", "tic_tac_toe", "matrix_pd", "goofspiel(num_cards=4)", "liars_dice",
    "tiny_hanabi", "hanabi(colors=2,ranks=3,hand_size=2)", "negotiation", "pig(winscore=10)", "blackjack",
    "repeated_game(stage_game=matrix_pd(),num_repetitions=3)", "misere(game=tic_tac_toe())", "catch", "nim",
)  # fmt: skip
REFUSED = {"crossword", "mfg_crowd_modelling", "mfg_crowd_modelling_2d", "mfg_dynamic_routing", "mfg_garnet"}
ALL = sorted(t.short_name for t in pyspiel.registered_games() if t.default_loadable)


def made(game: str, seed: int = 0, **options: object) -> Env:
    return envs.make(envs.sample_task(f"openspiel:{game}", options, index=seed))


@pytest.mark.parametrize("game", FAST)
def test_conformance(game: str) -> None:
    assert [f for f in check(f"openspiel:{game}", {}, episodes=2) if not f.passed] == []


@pytest.mark.slow
def test_every_loadable_game_plays_to_its_end() -> None:
    """All of them, at random, replayed once with the same result; refused games say why."""
    played, rng = set(), random.Random(0)
    for game in ALL:
        try:
            env = made(game, max_steps=40)
        except ConfigError as error:
            assert game in REFUSED, error
            continue
        while seen := env.observe():
            env.step({role: rng.choice(o.legal) for role, o in seen.items()})
        again = made(game, max_steps=40)
        for _, actions in env.history:  # type: ignore[attr-defined]
            again.step(actions)
        assert (again.state(), again.outcome()) == (env.state(), env.outcome()), game
        played.add(game)
    assert {*ALL} - played == REFUSED and len(played) > 100


# -- our own games on the same moves -------------------------------------------------------------------------------


def together(ours: Env, theirs: Env, translate: Callable[[Env, str], str], rng: random.Random) -> None:
    """Play both games with the same moves: the same players to move, the same legal moves, the same payoffs."""
    while seen := ours.observe():
        ((role, mine),) = seen.items()
        ((other, yours),) = theirs.observe().items()
        assert ours.roles.index(role) == theirs.roles.index(other)
        names = {translate(ours, move): move for move in mine.legal}
        assert sorted(names) == sorted(yours.legal)
        move = rng.choice(sorted(names))
        paid = ours.step({role: names[move]}), theirs.step({other: move})
        assert "illegal" not in {r.name for rewards in paid for r in rewards}
    assert not theirs.observe()


def payoffs(env: Env, rewards: Rewards) -> list[float]:
    return [sum(r.value or 0.0 for r in rewards.of(role)) for role in env.roles]


@pytest.mark.parametrize("seed", range(20))
def test_tictactoe_is_theirs(seed: int) -> None:
    def translate(env: Env, move: str) -> str:
        row, column = divmod(int(move) - 1, 3)
        return f"{'xo'[env.moves % 2]}({row},{column})"  # type: ignore[attr-defined]

    ours, theirs = envs.make(envs.sample_task("tictactoe", {})), made("tic_tac_toe")
    together(ours, theirs, translate, random.Random(seed))
    assert payoffs(ours, ours.outcome()) == payoffs(theirs, theirs.outcome())


@pytest.mark.parametrize("seed", range(20))
def test_connect_four_is_theirs(seed: int) -> None:
    ours, theirs = envs.make(envs.sample_task("connect_four", {})), made("connect_four")
    together(
        ours, theirs, lambda env, move: f"{'xo'[env.moves % 2]}{int(move) - 1}", random.Random(seed)  # type: ignore[attr-defined]
    )  # fmt: skip
    assert payoffs(ours, ours.outcome()) == payoffs(theirs, theirs.outcome())


@pytest.mark.parametrize("seed", range(20))
def test_kuhn_is_theirs(seed: int) -> None:
    ours, theirs = envs.make(envs.sample_task("kuhn", {}, index=seed)), made("kuhn_poker")
    theirs.state_now = theirs.spiel.new_initial_state()  # type: ignore[attr-defined]
    for card in ours.cards:  # type: ignore[attr-defined]
        theirs.state_now.apply_action("JQK".index(card))  # type: ignore[attr-defined]
    together(ours, theirs, lambda env, move: move.capitalize(), random.Random(seed))
    assert payoffs(ours, ours.outcome()) == payoffs(theirs, theirs.outcome())


@pytest.mark.parametrize("seed", range(30))
def test_leduc_is_theirs(seed: int) -> None:
    """The public card is the one that our game will turn up: it is found on a fork with the same random numbers."""
    rng = random.Random(seed)
    ours, theirs = envs.make(envs.sample_task("leduc", {}, index=seed)), made("leduc_poker")
    ahead = ours.fork()
    for _ in range(2):
        ((role, _),) = ahead.observe().items()
        ahead.step({role: "call"})
    dealt, left = [], ["J", "J", "Q", "Q", "K", "K"]
    for card in (*ours.cards, ahead.public):  # type: ignore[attr-defined]
        dealt.append(next(i for i, c in enumerate(left) if c == card))
        left[dealt[-1]] = ""
    theirs.state_now = theirs.spiel.new_initial_state()  # type: ignore[attr-defined]
    for card in dealt[:2]:
        theirs.state_now.apply_action(card)  # type: ignore[attr-defined]

    class Fixed(random.Random):
        def choice(self, seq):  # type: ignore[no-untyped-def]
            return dealt[2]

    theirs.rng = Fixed()
    together(ours, theirs, lambda env, move: move.capitalize(), rng)
    assert payoffs(ours, ours.outcome()) == payoffs(theirs, theirs.outcome())


def spoken(env: Env, role: str, move: str) -> str:
    """One of our Hanabi moves in OpenSpiel's notation."""
    verb, *rest = move.split()
    if verb != "hint":
        return f"({verb.capitalize()} {int(rest[0]) - 1})"
    seat, value = rest
    offset = (env.roles.index(seat) - env.roles.index(role)) % len(env.roles)
    return f"(Reveal player +{offset} {'rank' if value.isdigit() else 'color'} {value})"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("players", [2, 3, 5])
def test_hanabi_is_theirs(seed: int, players: int) -> None:
    """OpenSpiel is dealt the cards that our game draws; then legal moves, the player to move and the score agree."""
    ours = envs.make(envs.sample_task("hanabi", {"players": players}, index=seed))
    theirs = made("hanabi", arguments={"players": players})
    deal = [held.card for hand in ours.hands for held in hand]  # type: ignore[attr-defined]

    class Steered(random.Random):
        def choices(self, population, weights=None, **_):  # type: ignore[no-untyped-def]
            names = {theirs.state_now.action_to_string(-1, a): a for a in population}  # type: ignore[attr-defined]
            card = deal.pop(0)
            return [next(a for name, a in names.items() if card in name)]

        def choice(self, seq):  # type: ignore[no-untyped-def]
            return self.choices(seq)[0]

    theirs.state_now, theirs.rng = theirs.spiel.new_initial_state(), Steered()  # type: ignore[attr-defined]
    theirs._chance()  # type: ignore[attr-defined]
    rng, totals = random.Random(seed), [0.0, 0.0]
    while seen := ours.observe():
        ((role, mine),) = seen.items()
        ((other, yours),) = theirs.observe().items()
        assert ours.roles.index(role) == theirs.roles.index(other)
        names = {spoken(ours, role, move): move for move in mine.legal}
        assert sorted(names) == sorted(yours.legal)
        move, deck = rng.choice(sorted(names)), len(ours.deck)  # type: ignore[attr-defined]
        totals[0] += payoffs(ours, ours.step({role: names[move]}))[0]
        if len(ours.deck) < deck:  # type: ignore[attr-defined]
            deal.append(ours.hands[ours.roles.index(role)][-1].card)  # type: ignore[attr-defined]
        totals[1] += payoffs(theirs, theirs.step({other: move}))[0]
    assert not theirs.observe() and not deal
    assert totals[0] + payoffs(ours, ours.outcome())[0] == totals[1] + payoffs(theirs, theirs.outcome())[0]


# -- what it does by itself ----------------------------------------------------------------------------------------


def test_exploitability_is_that_of_our_kuhn() -> None:
    """Chance is drawn outcome by outcome, so it can be enumerated; the value is OpenSpiel's own, 11/12 of NashConv."""
    found = exploitability(envs.sample_task("openspiel:kuhn_poker", {}), uniform)
    native = exploitability(envs.sample_task("kuhn", {}), uniform)
    assert found.nash_conv == pytest.approx(native.nash_conv) == pytest.approx(11 / 12)


def test_an_illegal_reply_costs_the_least_the_game_pays() -> None:
    env = made("kuhn_poker")
    assert [(r.name, r.level, r.role, r.value) for r in env.step({"p0": "raise"})] == [
        ("illegal", Level.PROCESS, "p0", -1.0)
    ]
    assert payoffs(env, env.outcome()) == [-2.0, 2.0] and not env.observe()
    three = made("leduc_poker(players=3)", forfeit=-4.0)
    three.step({"p0": "?"})
    assert payoffs(three, three.outcome()) == [-4.0, 2.0, 2.0]
    team = made("hanabi")
    team.step({"p0": "?"})
    assert [(r.level, r.value) for r in team.outcome()] == [(Level.TEAM, 0.0)]
    both = made("matrix_rps")
    both.step({"p0": "?", "p1": "Rock"})
    assert payoffs(both, both.outcome()) == [-1.0, 1.0]


def test_prompts_hold_only_what_the_player_knows() -> None:
    """In every deal p0's prompt does not depend on p1's card, and prompts for different own cards differ."""
    prompts: dict[str, set[str]] = {}
    for seed in range(30):
        env = made("kuhn_poker", seed)
        own = env.state().split()[0]
        prompts.setdefault(own, set()).add(env.observe()["p0"].messages[-1].content)
    assert len(prompts) == 3 and all(len(texts) == 1 for texts in prompts.values())
    assert len(set.union(*prompts.values())) == 3


def test_errors_name_the_key() -> None:
    with pytest.raises(ConfigError, match="Unknown parameter 'playerss'"):
        made("kuhn_poker(playerss=3)")
    with pytest.raises(ConfigError, match="mean-field"):
        made("mfg_garnet")
    with pytest.raises(ConfigError, match=r"env.view is 'information', but 'hanabi' does not have this view"):
        made("hanabi", view="information")


PLAYTHROUGHS = Path(os.environ.get("INTERPLAY_DATA", "")) / "openspiel_playthroughs"


@pytest.mark.skipif(not os.environ.get("INTERPLAY_DATA"), reason="INTERPLAY_DATA is not set")
@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four"])
def test_recorded_games_come_out(game: str) -> None:
    """DeepMind's recorded games: every list of legal moves, and the returns."""
    text = (PLAYTHROUGHS / f"{game}.txt").read_text()
    env = made(game)
    before, *rest = re.split(r'^# Apply action "(.*)"$', text, flags=re.MULTILINE)
    states, moves = [before, *rest[1::2]], rest[::2]
    compared = 0
    for state, move in zip(states[:-1], moves, strict=True):
        ((role, seen),) = env.observe().items()
        if listed := re.search(r"^StringLegalActions\(\) = (\[.*\])$", state, re.MULTILINE):  # some are left out
            assert list(seen.legal) == re.findall(r'"([^"]*)"', listed[1])
            compared += 1
        env.step({role: move})
    assert compared > 4
    final = re.findall(r"^Returns\(\) = \[(.*)\]$", text, re.MULTILINE)[-1]
    assert payoffs(env, env.outcome()) == [float(x) for x in final.split(",")] and not env.observe()

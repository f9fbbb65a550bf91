"""One role sees, the other hears: only together do they know the door."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.envs.check import check
from interplay.envs.env import outcome_of, sample_task
from interplay.envs.games.spotter_pilot import ORDERS, SIGNS, SpotterPilot


def made(index: int = 0, **options: object) -> SpotterPilot:
    env = envs.make(sample_task("spotter_pilot", options, index=index))
    assert isinstance(env, SpotterPilot)
    return env


def found(env: SpotterPilot, said: str, door: str) -> float | None:
    env.step({"spotter": said})
    if not env.over:
        env.step({"pilot": door})
    (reward,) = outcome_of(env)
    return reward.value


def test_the_door_with_the_wanted_sign_is_rewarded() -> None:
    for index in range(8):
        env = made(index)
        right = env.doors.index(env.wanted) + 1
        assert found(env, env.caption("spotter"), str(right)) == 1.0
        assert found(made(index), ORDERS[0], str(right % 4 + 1)) == 0.0
    assert found(made(), "no order", "1") == 0.0 and found(made(), ORDERS[0], "5") == 0.0


def test_each_sees_or_hears_its_own_part_alone() -> None:
    """Tasks with equal doors show the spotter the same picture; the pilot's words do not depend on the doors."""
    pictures: dict[tuple[str, ...], set[str]] = {}
    for index in range(60):
        env = made(index)
        (seen,) = env.observe()["spotter"].messages
        assert (seen.content, seen.media[0].kind) == ("", "image")
        pictures.setdefault(env.doors, set()).add(seen.media[0].digest)
        env.step({"spotter": ORDERS[3]})
        (told,) = env.observe()["pilot"].messages
        assert (told.content, told.media[0].kind) == (ORDERS[3], "audio")
    assert all(len(digests) == 1 for digests in pictures.values())
    assert len(set.union(*pictures.values())) == len(pictures) > 12


def test_one_sense_alone_is_worth_a_quarter_by_enumeration() -> None:
    """The best reply to everything that a pilot can know without the sound, and without the words."""
    rows = list(itertools.permutations(SIGNS))
    deaf = sum(max(sum(doors[n] == wanted for wanted in SIGNS) for n in range(4)) for doors in rows)
    blind = sum(max(sum(doors[n] == wanted for doors in rows) for n in range(4)) for wanted in SIGNS)
    both = sum(max(doors[n] == wanted for n in range(4)) for doors in rows for wanted in SIGNS)
    total = len(rows) * len(SIGNS)
    assert (Fraction(deaf, total), Fraction(blind, total), Fraction(both, total)) == (Fraction(1, 4), Fraction(1, 4), 1)


def test_a_pilot_alone_sees_and_hears_and_each_sense_can_be_muted() -> None:
    shown: dict[str, tuple[set[str], set[str]]] = {}
    for mute in ("none", "picture", "sound"):
        pictures, sounds = set(), set()
        for index in range(12):
            env = made(index, team="single", mute=mute)
            (message,) = env.observe()["pilot"].messages
            assert [m.kind for m in message.media] == ["image", "audio"] and message.content == ""
            pictures.add(message.media[0].digest)
            sounds.add(message.media[1].digest)
            told = {"none": [*env.doors, env.wanted], "picture": [env.wanted], "sound": [*env.doors]}
            assert env.caption("pilot").split() == told[mute]
        shown[mute] = pictures, sounds
    assert len(shown["picture"][0]) == 1, "a grey picture tells nothing"
    assert shown["none"][0] == shown["sound"][0] and shown["none"][1] == shown["picture"][1]
    same = {made(i, team="single", mute="sound").wanted for i in range(12)}
    noise = {len(made(i, team="single", mute="sound").observe()["pilot"].messages[0].media[1].data) for i in range(12)}
    assert len(same) > 1 and len(noise) == 1, "noise of the same length for every sign"


def test_a_pilot_that_thinks_aloud_names_a_sign_first_and_only_its_door_counts() -> None:
    for index in range(8):
        env = made(index, aloud=True)
        right = env.doors.index(env.wanted) + 1
        for sign in SIGNS:
            assert found(made(index, aloud=True), ORDERS[0], f"{sign} {right}") == 1.0
        assert found(made(index, aloud=True), ORDERS[0], f"{env.wanted} {right % 4 + 1}") == 0.0
        assert found(made(index, aloud=True), ORDERS[0], str(right)) == 0.0, "a door alone is not a legal reply"
    env = made(aloud=True)
    env.step({"spotter": ORDERS[0]})
    assert len(set(env.observe()["pilot"].legal)) == 16
    alone = made(aloud=True, team="single").observe()["pilot"].legal
    assert len(set(alone)) == 24 * 16 and "U L D R L 2" in alone, "a pilot alone also says what it sees"


@pytest.mark.parametrize("aloud", [False, True])
@pytest.mark.parametrize("team", ["pair", "single"])
def test_the_solver_finds_every_door_and_random_play_a_quarter(team: str, aloud: bool) -> None:
    scores = {}
    for name in ("solver", "random"):
        bot, rng = make_bot(name, "spotter_pilot"), random.Random(0)
        wins = 0.0
        for index in range(200):
            env = made(index, team=team, aloud=aloud)
            while seen := env.observe():
                env.step({role: bot.act(env, role, rng) for role in seen})
            (reward,) = outcome_of(env)
            wins += reward.value or 0.0
        scores[name] = wins / 200
    assert scores["solver"] == 1.0
    assert abs(scores["random"] - 0.25) < 4 * (0.25 * 0.75 / 200) ** 0.5


def test_spotter_and_pilot_pass_the_conformance_suite() -> None:
    for options in ({}, {"team": "single"}, {"aloud": True}, {"aloud": True, "team": "single"}):
        assert [f for f in check("spotter_pilot", options) if not f.passed] == []

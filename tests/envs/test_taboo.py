"""Taboo: clues without forbidden words, guesses from the table, one reward for both."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interplay.agents.bots import make_bot
from interplay.envs import SPLITS, make, sample_task
from interplay.envs.check import check
from interplay.envs.games.objects import LONGEST, OBJECTS, names_one
from interplay.envs.games.taboo import Taboo, taboo_words


def game(index: int = 0, split: str = "train", **options: Any) -> Taboo:
    env = make(sample_task("taboo", options, split, index))
    assert isinstance(env, Taboo)
    return env


def total(env: Taboo) -> float:
    return sum(r.value or 0.0 for r in env.outcome())


@pytest.mark.parametrize("options", [{}, {"objects": 2, "rounds": 1, "taboo": 0}, {"objects": 40, "taboo": 8}])
def test_the_environment_conforms(options: dict[str, Any]) -> None:
    assert [f for f in check("taboo", options, episodes=5) if not f.passed] == []


def test_sooner_is_better() -> None:
    """promise 8: 1 in the first of three rounds, a sixth less in each later round, 0 if it is not found."""
    for wrong, worth in enumerate([1.0, 5 / 6, 4 / 6, 0.0]):
        env = game()
        others = [name for name in env.names if name != env.secret]
        for turn in range(wrong):
            env.step({"hinter": "hm"})
            env.step({"guesser": others[turn]})
        if wrong < 3:
            env.step({"hinter": "hm"})
            env.step({"guesser": env.secret.upper() + "."})
        assert not env.observe() and total(env) == pytest.approx(worth)


@pytest.mark.parametrize(
    "clue",
    ["a {secret}", "two {secret}s", "{spelt}", "not a {other}", "it has {taboo}", "", "x" * (LONGEST + 1), "{SECRET}!"],
)
def test_a_barred_clue_is_silence_and_costs(clue: str) -> None:
    """The secret, another object, a taboo word; in capitals, in the plural, spelt out; nothing, and too long."""
    env = game()
    other = next(name for name in env.names if name != env.secret)
    fields = {"secret": env.secret, "SECRET": env.secret.upper(), "other": other, "taboo": env.taboo[0]}
    rewards = env.step({"hinter": clue.format(spelt="-".join(env.secret), **fields)})
    assert [(r.name, r.role, r.value) for r in rewards] == [("illegal", "hinter", -0.1)]
    assert "(silence)" in env.observe()["guesser"].messages[-1].content


NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "last",
)
CODES = {  # how a pair could agree to say the place of the secret in a list
    "digits": lambda place: f"number {place + 1}",
    "words": lambda place: f"it is {NUMBERS[place]} of them" if place else "it is the first",
    "ordinals": lambda place: f"the {ORDINALS[place]} thing",
    "tally": lambda place: "so " * (place + 3),
    "signs": lambda place: "look" + "!" * (place + 3),
    "another script": lambda place: f"look {chr(0x0661 + place % 9)}",
}


@pytest.mark.parametrize("code", CODES)
def test_the_place_in_a_list_is_no_clue(code: str) -> None:
    """Audit B1: both roles saw the objects in the same order, so a pair won by naming a place."""
    found = 0
    for index in range(60):
        env = game(index, rounds=1)
        shown = env.observe()["hinter"].messages[0].content.split("table: ")[1].split(".")[0].split(", ")
        place = shown.index(env.secret)
        rewards = env.step({"hinter": CODES[code](place)})
        assert [r.name for r in rewards] == ["illegal"], CODES[code](place)
        env.step({"guesser": env.observe()["guesser"].legal[place]})
        found += env.found
    assert found <= 14  # by chance 5 of 60, and more than 14 in one of 5,000 tests


def test_scripted_clues_are_no_places() -> None:
    """What the table of properties can say stays allowed."""
    from interplay.envs.games.objects import QUESTIONS, points_at_a_place, statement

    for key in QUESTIONS:
        assert not points_at_a_place(statement(key, True)) and not points_at_a_place(statement(key, False))
    for fair in ("a pet that barks", "you eat it, with sugar", "very, very big!"):
        assert not points_at_a_place(fair), fair
    for place in ("iv", "its name starts with d", "4", "five legs", "..."):
        assert points_at_a_place(place), place


def test_words_are_found_whole() -> None:
    assert names_one("An ANT!", ["ant"]) and names_one("hot-air balloon s", ["hot air balloon"])
    assert not names_one("elephant", ["ant"]) and not names_one("a b", ["ab c"])


@pytest.mark.parametrize(
    "said", ["elppa", "ｅ an ａｐｐｌｅ", "аррle", "ap-ple", "áppłe ápple", "selppa", "a p p l e s"]
)
def test_a_disguised_word_counts_as_said(said: str) -> None:
    """A pair won by writing the secret backwards or in the letters of another script."""
    assert names_one(said, ["apple"])
    assert not names_one("it is on top", ["pot"]) and not names_one("people like it", ["apple"])


def test_the_guesser_is_told_neither_the_secret_nor_what_is_barred() -> None:
    env = game()
    env.step({"hinter": "you may like it"})
    seen = env.observe()["guesser"]
    for name in env.names:  # the same words whichever of them is the secret
        env.secret = name
        assert env.observe()["guesser"] == seen
    assert set(seen.legal) == set(env.names)
    env.secret = env.names[0]
    env.step({"guesser": env.names[1]})
    env.step({"hinter": "no"})
    assert env.names[1] not in env.observe()["guesser"].legal


def test_taboo_words_are_the_telling_ones() -> None:
    assert set(taboo_words("lamp", 2)) <= OBJECTS["lamp"] and len(taboo_words("lamp", 8)) == len(OBJECTS["lamp"])


def test_no_draw_of_one_split_is_anothers() -> None:
    drawn = {split: {(e.names, e.secret) for e in (game(i, split, objects=2) for i in range(300))} for split in SPLITS}
    assert not drawn["train"] & drawn["test"] and not drawn["train"] & drawn["validation"]


def test_the_scripted_pair_finds_nearly_all() -> None:
    """Over 100 games of 12 things; a guesser without clues finds a quarter in three rounds."""
    found = 0
    for index in range(100):
        env, bot, rng = game(index), make_bot("solver", "taboo"), random.Random(index)
        while seen := env.observe():
            (role,) = seen
            env.step({role: bot.act(env, role, rng)})
        found += env.found
    assert found > 80

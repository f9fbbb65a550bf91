"""Taboo: clues without what is barred, guesses from the table, one reward for both."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interplay.agents.bots import make_bot
from interplay.envs import SPLITS, make, sample_task
from interplay.envs.check import check
from interplay.envs.games.objects import OBJECTS, names_one
from interplay.envs.games.taboo import LONGEST, Taboo, taboo_words


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
    """promise 8: 1 in the first of three rounds, a sixth less in every other, nothing for no name."""
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
    """The secret, another thing, a taboo word; in capitals, in the plural, spelt out; nothing, and too much."""
    env = game()
    other = next(name for name in env.names if name != env.secret)
    fields = {"secret": env.secret, "SECRET": env.secret.upper(), "other": other, "taboo": env.taboo[0]}
    rewards = env.step({"hinter": clue.format(spelt="-".join(env.secret), **fields)})
    assert [(r.name, r.role, r.value) for r in rewards] == [("illegal", "hinter", -0.1)]
    assert "(silence)" in env.observe()["guesser"].messages[-1].content


def test_words_are_found_whole() -> None:
    assert names_one("An ANT!", ["ant"]) and names_one("hot-air balloon s", ["hot air balloon"])
    assert not names_one("elephant", ["ant"]) and not names_one("a b", ["ab c"])


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

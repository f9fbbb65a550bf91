"""The Hanabi team scores well above fifteen, without looking at its own cards."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interplay.agents.bots import make_bot
from interplay.envs import make, sample_task
from interplay.envs.games.hanabi import Hanabi


def play(index: int, **options: Any) -> Hanabi:
    env, bot, rng = make(sample_task("hanabi", options, index=index)), make_bot("hanabi", "hanabi"), random.Random(0)
    assert isinstance(env, Hanabi)
    while seen := env.observe():
        (role,) = seen
        env.step({role: bot.act(env, role, rng)})
    return env


@pytest.mark.parametrize(("players", "games"), [(2, 15), (3, 5), (4, 5), (5, 5)])
def test_the_team_averages_more_than_fifteen(players: int, games: int) -> None:
    """Over many games the mean is above 21 with a standard deviation of 2.5, so the mean of five games is practically
    never below 17."""
    scores = [play(index, players=players).score for index in range(games)]
    assert sum(scores) / len(scores) > 17


@pytest.mark.slow
def test_the_two_player_team_over_many_games() -> None:
    """The mean of 200 games; lost games count as zero."""
    scores = [play(index).score for index in range(200)]
    assert sum(scores) / len(scores) > 20.5


def test_the_small_game_is_played_too() -> None:
    """Another deck, hand size and number of lives; random play scores next to nothing here."""
    scores = [play(index, variant="small").score for index in range(40)]
    assert sum(scores) / len(scores) > 4.5


@pytest.mark.parametrize("options", [{}, {"players": 4}, {"variant": "small"}])
def test_it_never_looks_at_its_own_cards(options: dict[str, Any]) -> None:
    """promise 8: its move does not depend on its own hand and the deck, except for what it was told."""
    bot, rng = make_bot("hanabi", "hanabi"), random.Random(0)
    for index in range(2):
        env = make(sample_task("hanabi", options, index=index))
        while seen := env.observe():
            (role,) = seen
            move = bot.act(env, role, rng)
            assert {bot.act(env.redeal(role, rng), role, rng) for _ in range(2)} == {move}
            env.step({role: move})

"""Ratings recover the strengths that generated the games."""

from __future__ import annotations

import math
import random

import pytest

from interplay.evaluation.ratings import CENTRE, SCALE, RatedGame, bradley_terry, elo, rate


def games(strengths: dict[str, float], count: int, seed: int = 0) -> list[RatedGame]:
    """Every pair plays `count` games; the odds follow Elo's scale."""
    rng, out = random.Random(seed), []
    names = sorted(strengths)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            chance = 1 / (1 + 10 ** ((strengths[b] - strengths[a]) / 400))
            out += [(a, b, float(rng.random() < chance)) for _ in range(count)]
    return out


TRUE = {"a": 1700.0, "b": 1550.0, "c": 1450.0, "d": 1300.0}


def test_two_players_by_hand() -> None:
    """Three wins to one: odds of three, which is 400·log10(3) points, centred on the mean. No prior."""
    found = bradley_terry([("a", "b", 1.0)] * 3 + [("a", "b", 0.0)], prior=0.0)
    assert found["a"] - found["b"] == pytest.approx(SCALE * math.log(3), abs=1e-3)
    assert found["a"] + found["b"] == pytest.approx(2 * CENTRE)


def test_a_draw_is_half_a_win_and_the_side_does_not_matter() -> None:
    drawn = bradley_terry([("a", "b", 0.5)] * 8)
    assert drawn["a"] == pytest.approx(drawn["b"])
    one = bradley_terry([("a", "b", 1.0), ("a", "b", 0.0), ("a", "b", 1.0)])
    two = bradley_terry([("b", "a", 0.0), ("b", "a", 1.0), ("b", "a", 0.0)])
    assert one == pytest.approx(two)


def test_strengths_are_recovered_within_their_intervals() -> None:
    found = rate(games(TRUE, 400))
    assert [r.name for r in found] == ["a", "b", "c", "d"]
    for r in found:
        assert r.low <= r.value <= r.high and r.high - r.low < 80
        assert r.value == pytest.approx(TRUE[r.name], abs=45)
        assert r.elo == pytest.approx(TRUE[r.name], abs=90)
        assert r.games == 1200


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """60 tournaments of 4 players: about 95% of the 240 intervals should contain the true rating."""
    held = [
        r.low <= TRUE[r.name] <= r.high
        for seed in range(60)
        for r in rate(games(TRUE, 40, seed), resamples=60, seed=seed)
    ]
    assert sum(held) / len(held) > 0.85


def test_who_never_lost_stays_finite_and_the_same_games_give_the_same_ratings() -> None:
    won = [("a", "b", 1.0)] * 20
    assert all(math.isfinite(v) for v in bradley_terry(won).values())
    assert rate(won) == rate(won)
    assert elo(won)["a"] > CENTRE > elo(won)["b"]

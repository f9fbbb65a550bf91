"""The claim of docs/league.md, on several seeds: plain self-play goes in circles, and a league keeps its rating."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def league(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/league.py")


def test_the_table_says_what_was_found(league: ModuleType) -> None:
    table = league.markdown({("self-play", 0): [0.5, 0.4, 0.1, 0.3]}, every=2)
    assert table.splitlines()[-1] == "| self-play | 0 | 0.50 | 0.40 | 0.10 | 0.30 | 0.10 | 0.20 |"
    assert table.splitlines()[0].startswith("| run | seed | step 0 | step 2 | step 4 | step 6 |")


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_league_keeps_its_rating_where_self_play_cycles(league: ModuleType, seed: int) -> None:
    """A policy picked at random has a rating of 5/18 on average, with a deviation of 0.10. The mean of the 16 ratings
    in the second half of a run has an error of 0.026. A policy that goes in circles is not better. ⅓ is two such errors
    above."""
    circles, kept = (fmean(league.late(league.curve(way, seed, 60, 2))) for way in ("self-play", "league"))
    assert circles < 1 / 3 < kept

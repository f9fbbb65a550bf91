"""Ratings of a league's learners over time, from their games against snapshots."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from written import WHOLE, write_run

from interplay.viewer.ladder import ladder
from interplay.viewer.run import RunReader


def rated(folder: Path, rows: list[dict[tuple[str, str], tuple[float, float]]]) -> dict[str, Any]:
    """The ladder of a run whose steps 5, 10, … have these games: learner and opponent, wins and games."""
    run = write_run(folder, 0, WHOLE)
    with (run / "metrics.jsonl").open("w") as file:
        for number, games in enumerate(rows, start=1):
            row: dict[str, float] = {"step": 5 * number}
            for (who, other), (won, played) in games.items():
                row[f"league/score/{who}/{other}"] = (won + 0.5) / (played + 1)
                row[f"league/games/{who}/{other}"] = played
            file.write(json.dumps(row) + "\n")
    return ladder(RunReader(run, "run"), {})


def test_a_learner_that_beats_its_past_rises_and_its_games_are_joined_over_the_steps(tmp_path: Path) -> None:
    """Step 5 wins three of four games against the start, and step 10 three of four against step 5."""
    found = rated(
        tmp_path / "run",
        [{("player", "player@start"): (300.0, 400.0)}, {("player", "player@5"): (300.0, 400.0)}],
    )
    three_to_one = 400 * math.log10(3)
    assert found["steps"] == [0, 5, 10]
    assert found["ratings"]["player"] == pytest.approx([0.0, three_to_one, 2 * three_to_one], rel=0.01)


def test_an_exploiter_is_rated_against_the_learner_of_its_step_and_an_even_score_is_no_game(tmp_path: Path) -> None:
    """An opponent that was not met for long has a score near ½ from hardly any games, which must not count."""
    found = rated(
        tmp_path / "run",
        [
            {("player", "bot:random"): (200.0, 400.0), ("player", "player@start"): (200.0, 400.0)},
            {("player", "player@5"): (0.0, 0.1), ("rival", "player@now"): (300.0, 400.0)},
            {("player", "bot:random"): (200.0, 400.0), ("player", "player@10"): (0.0, 0.3)},
            {("player", "player@start"): (200.0, 400.0), ("rival", "player@now"): (200.0, 400.0)},
        ],
    )
    assert found["steps"] == [0, 5, 10, 20]
    player, rival = found["ratings"]["player"], found["ratings"]["rival"]
    assert player[0] == 0.0 and player[1] == pytest.approx(0.0, abs=2) and player[3] == pytest.approx(0.0, abs=2)
    assert rival[:2] == [None, None] and rival[2] - player[2] == pytest.approx(400 * math.log10(3), rel=0.01)
    assert player[2] == pytest.approx(-rival[2], abs=10)  # these two met no one else
    assert rival[3] == pytest.approx(player[3], abs=2)


def test_a_run_without_games_of_a_league_has_no_ratings(tmp_path: Path) -> None:
    assert rated(tmp_path / "run", [{}, {}]) == {"steps": [], "ratings": {}}

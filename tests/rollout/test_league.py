"""The league decides from records of play, without weights: who is drawn, who stays, when a life ends, what a collapse
is."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from interplay.config import parse
from interplay.errors import CheckpointError, GuardError
from interplay.rollout.league import League, Tally, chances, score
from interplay.rollout.resolve import resolve
from interplay.types import Episode, FromLeague, Rewards, Scripted, Task
from interplay.types.occupant import parse as occupant

BASE: dict[str, Any] = {
    "name": "test",
    "env": {"name": "tictactoe"},
    "policies": {"main": {"base": "tiny"}, "rival": {"base": "tiny"}},
    "seats": "main",
    "algorithm": {"name": "grpo"},
    "matchups": [
        {"share": 0.5, "one": "main", "others": "@league"},
        {"share": 0.25, "one": "rival", "others": "main@now"},
    ],
    "league": {"every": 2, "capacity": 4, "exploiters": {"rival": {"games": 4, "patience": 6}}},
}


def make(**changes: Any) -> League:
    return League(resolve(parse({**BASE, "league": {**BASE["league"], **changes}})))


def game(x: str, o: str, won: float, name: str = "t") -> Episode:
    """X gains `won`, and O the opposite."""
    rewards = Rewards.agent("win", {"X": won, "O": -won})
    return Episode(name, Task(name, "tictactoe", 0), 0, {"X": occupant(x), "O": occupant(o)}, rewards=rewards)


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        ("pfsp", [1.0 / 1.29, 0.25 / 1.29, 0.04 / 1.29]),
        ("variance", [0.0, 0.25 / 0.41, 0.16 / 0.41]),
        ("uniform", [1 / 3, 1 / 3, 1 / 3]),
        ("latest", [0.0, 0.0, 1.0]),
    ],
)
def test_chances_by_hand(draw: Any, expected: list[float]) -> None:
    """Opponents that are never beaten, beaten half of the time, and beaten in four of five games."""
    assert chances([0.0, 0.5, 0.8], draw, power=2.0) == pytest.approx(expected)


def test_where_every_weight_is_nothing_all_are_alike() -> None:
    assert chances([1.0, 1.0], "pfsp", 2.0) == [0.5, 0.5]


def test_a_score_is_over_all_rivals_and_both_seats_of_one_player_are_one() -> None:
    reward = make().plan.recipe.reward
    assert [score(game("main", "rival", w), "X", reward) for w in (1.0, 0.0, -1.0)] == [1.0, 0.5, 0.0]
    assert score(game("main", "rival", 1.0), "O", reward) == 0.0


def test_old_games_fade_towards_even() -> None:
    tally = Tally()
    for _ in range(20):
        tally.add(1.0)
    before = tally.score
    for _ in range(100):
        tally.fade(0.9)
    assert before > 0.95 and tally.score == pytest.approx(0.5, abs=1e-3)


def test_the_one_that_beats_the_learner_is_drawn_most() -> None:
    league = make()
    league.add("main", 2)
    league.record([game("main", "main@start", 1.0), game("main@2", "main", 1.0)] * 10)
    found = league.odds(league.plan.matchups[0], FromLeague())
    odds = {str(who): chance for who, chance in found.items()}
    assert set(odds) == {"main@start", "main@2", "rival@start"}
    assert odds["main@2"] > odds["rival@start"] > odds["main@start"], "lost to, never met, beaten"
    drawn = Counter(str(who) for step in range(3000) for who in league.lineups(step)[0, FromLeague()])
    total = sum(drawn.values())
    assert {n: drawn[n] / total for n in odds} == pytest.approx(odds, abs=0.02), "lineups keep the chances"


def test_seats_name_a_snapshot_and_are_a_function_of_task_step_and_state() -> None:
    one, two = make(), make()
    tasks = [one.plan.task(i) for i in range(200)]
    assert [one.seats_for(t, 3) for t in tasks] == [two.seats_for(t, 3) for t in tasks]
    seats = [{role: str(who) for role, who in one.seats_for(t, 3).items()} for t in tasks]
    assert {n for s in seats for n in s.values()} == {"main", "main@start", "rival@start", "rival", "main@now"}
    mixed = [s for s in seats if "main" in s.values() and set(s.values()) != {"main"}]
    assert {r for s in mixed for r, n in s.items() if n == "main"} == {"X", "O"}, "one sits in any role"


def test_bots_are_in_the_league_from_the_beginning() -> None:
    league = make(bots=["bot:random"])
    assert Scripted("random") in league.odds(league.plan.matchups[0], FromLeague())
    assert Scripted("random") not in league.odds(league.plan.matchups[0], FromLeague("main"))


def test_above_the_capacity_the_snapshot_beaten_most_often_is_dropped() -> None:
    """The start and the newest stay, and the table forgets snapshots that were dropped."""
    league = make(capacity=3)
    league.add("main", 2)
    league.add("main", 4)
    league.record([game("main", "main@start", 1.0), game("main", "main@4", 1.0), game("main", "main@2", -1.0)] * 5)
    league.add("main", 6)
    assert [str(who) for who in league.snapshots["main"]] == ["main@start", "main@2", "main@6"]
    assert set(league.tallies["main"]) == {"main@start", "main@2"}
    for step in range(8, 100, 2):
        league.add("main", step)
        assert len(league.snapshots["main"]) == 3
    assert [str(league.snapshots["main"][i]) for i in (0, -1)] == ["main@start", "main@98"]


def test_an_exploiters_life_ends_when_it_wins_or_its_patience_does() -> None:
    league = make()
    assert not league.over("rival", 1)
    league.record([game("rival", "main@now", 1.0)] * 3)
    assert not league.over("rival", 1), "too few games"
    league.record([game("main@now", "rival", -1.0)] * 3)
    assert league.over("rival", 2)
    assert league.rebirth("rival", 2), "reset is 1: from the start"
    assert league.lives["rival"].number == 2 and not league.tallies["rival"]
    assert not league.over("rival", 7) and league.over("rival", 8)


def test_an_exploiter_must_beat_everyone_it_met() -> None:
    league = make()
    league.record([game("rival", "main@now", 1.0)] * 20 + [game("rival", "main@start", -1.0)] * 20)
    assert not league.over("rival", 1)


def test_a_fall_under_the_best_rating_is_a_collapse_and_too_many_end_the_run() -> None:
    league = make(alarm={"panel": ["bot:random"], "drop": 0.2, "limit": 2, "rating": "worst"})
    assert league.rating({"a": 0.2, "b": 0.9}) == 0.2
    assert [league.rate("main", r) for r in (0.5, 0.8, 0.65)] == [None, None, None]
    why = league.rate("main", 0.55)
    assert why is not None and "from 0.80 to 0.55" in why
    league.add("main", 2)
    assert [str(league.roll_back("main", why)) for _ in range(2)] == ["main@2", "main@2"]
    with pytest.raises(GuardError, match="main@2"):
        league.roll_back("main", why)
    league.add("main", 4)
    assert str(league.roll_back("main", why)) == "main@4", "a good snapshot since then: counted anew"


def test_illegal_turns_and_lost_entropy_are_symptoms() -> None:
    quiet = make()
    assert quiet.symptom("main", [], 0.0) is None
    league = make(alarm={"panel": ["bot:random"], "entropy": 0.1})
    assert league.symptom("main", [], 0.2) is None
    assert "entropy" in (league.symptom("main", [], 0.05) or "")


def test_the_state_survives_a_json_file() -> None:
    league = make()
    league.add("main", 2)
    league.record([game("main", "main@start", 1.0), game("rival", "main@now", 1.0)] * 4)
    league.rebirth("rival", 5)
    state = json.loads(json.dumps(league.state_dict()))
    other = make()
    other.load_state_dict(state)
    assert other.state_dict() == league.state_dict()
    assert other.lineups(7) == league.lineups(7)
    del state["snapshots"]["rival"]
    with pytest.raises(CheckpointError, match="rival"):
        make().load_state_dict(state)


def test_what_is_logged_has_names() -> None:
    league = make()
    found = league.record([game("main", "rival@start", 1.0)])
    assert found["league/chance/main/main@start"] == 0.5
    assert found["league/score/main/rival@start"] == 0.75 and found["league/games/main/rival@start"] == 1.0
    assert found["league/life/rival"] == 1.0 and found["league/size"] == 2.0


# -- schedules --------------------------------------------------------------------------------------------------------


def shares(steps: range, **matchup: Any) -> list[float]:
    data = {**BASE, "matchups": [{"one": "main", "others": "bot:random", **matchup}, BASE["matchups"][1]]}
    made = parse({**data, "league": None}).matchups[0]
    return [made.share_at(step) for step in steps]


def test_a_share_switches_drifts_and_begins_again() -> None:
    points = [[0, 0.0], [4, 0.4]]
    assert shares(range(0, 8, 2), share=points) == [0.0, 0.0, 0.4, 0.4]
    assert shares(range(0, 8, 2), share=points, change="drift") == pytest.approx([0.0, 0.2, 0.4, 0.4])
    assert shares(range(8), share=points, period=6) == [0.0, 0.0, 0.0, 0.0, 0.4, 0.4, 0.0, 0.0]


def test_the_mix_of_opponents_follows_the_schedule() -> None:
    matchup = {"share": [[0, 0.1], [100, 0.9]], "change": "drift", "one": "main", "others": "bot:random"}
    data = {**BASE, "policies": {"main": {"base": "tiny"}}, "matchups": [matchup], "league": None}
    plan = resolve(parse(data))
    tasks = [plan.task(i) for i in range(1000)]
    for step, share in ((0, 0.1), (50, 0.5), (100, 0.9), (500, 0.9)):
        met = sum(Scripted("random") in plan.seats_for(t, step).values() for t in tasks) / len(tasks)
        assert met == pytest.approx(share, abs=0.05)

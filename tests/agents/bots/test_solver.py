"""The solver bot: optimal Sokoban on known levels, clear refusals, and a simple rule in the word games."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from interplay.agents.bots import known_bots, make_bot
from interplay.agents.bots import solver as solvers
from interplay.agents.bots.solver import sokoban
from interplay.envs import make, sample_task
from interplay.envs.games.sokoban import Sokoban
from interplay.envs.games.sokoban_room import Room, offsets, parse_xsb, read_xsb
from interplay.errors import ConfigError, EnvError
from interplay.types import Rewards, Role

DATA = Path(__file__).parents[2] / "data"
MICROBAN = [(8, 33), (3, 16), (13, 41), (7, 23), (6, 25), (29, 107)]  # fewest pushes, fewest moves


def played(room: Room, moves: tuple[str, ...]) -> tuple[int, int]:
    """The numbers of pushes and moves, after checking every move."""
    boxes, player, pushes = room.boxes, room.player, 0
    for move in moves:
        step = offsets(room.width)[move]
        player += step
        if boxes >> player & 1:
            assert (room.floor & ~boxes) >> (player + step) & 1
            boxes ^= 1 << player | 1 << (player + step)
            pushes += 1
        assert room.floor >> player & 1
    assert boxes == room.goals
    return pushes, len(moves)


@pytest.mark.parametrize("number", range(6))
def test_the_first_levels_of_microban(number: int) -> None:
    """The known fewest pushes and the known fewest moves."""
    room = parse_xsb(read_xsb((DATA / "microban.xsb").read_text())[number])
    by_pushes = sokoban(room, room.boxes, room.player)
    by_moves = sokoban(room, room.boxes, room.player, "moves")
    assert by_pushes is not None and played(room, by_pushes)[0] == MICROBAN[number][0]
    assert by_moves is not None and played(room, by_moves)[1] == MICROBAN[number][1]


def test_boxoban_levels(samples: Path) -> None:
    """Against recorded optima."""
    boxoban = samples / "boxoban"
    rows = [json.loads(line) for line in (boxoban / "optimal_lengths.jsonl").read_text().splitlines()]
    easy = [r for r in rows if r["file"] == "medium_valid_000.txt" and (r["optimal_pushes"] or 99) < 13]
    levels = read_xsb((boxoban / "medium_valid_000.txt").read_text())
    for row in easy[:8]:
        room = parse_xsb(levels[row["level"]])
        by_pushes = sokoban(room, room.boxes, room.player)
        by_moves = sokoban(room, room.boxes, room.player, "moves")
        assert by_pushes is not None and played(room, by_pushes)[0] == row["optimal_pushes"]
        assert by_moves is not None and played(room, by_moves)[1] == row["optimal_moves"]


def test_a_lost_room_has_no_solution_and_the_bot_plays_on() -> None:
    """With a box in a corner, or four boxes in a square, there is no solution, and the bot makes a legal move."""
    corner = parse_xsb("#####\n#$ .#\n#@  #\n#####")
    assert sokoban(corner, corner.boxes, corner.player) is None
    square = parse_xsb("#######\n#.... #\n# $$  #\n# $$ @#\n#     #\n#######")
    assert sokoban(square, square.boxes, square.player) is None
    env = make(sample_task("sokoban", {}))
    assert isinstance(env, Sokoban)
    lost = next(c for c in range(36) if env.level.floor >> c & 1 and all(c not in p for p in env.level.pulls))
    env.boxes = 1 << lost
    assert lost != env.player and env.legal_moves()
    env.step({"planner": ""})
    assert make_bot("solver", "sokoban").act(env, "actor", random.Random(0)) in env.legal_moves()


def test_a_room_too_large_to_search_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a limit instead of an endless search."""
    monkeypatch.setattr(solvers, "LIMIT", 20)
    monkeypatch.setattr(solvers, "_PLANS", {})
    room = parse_xsb(read_xsb((DATA / "microban.xsb").read_text())[5])
    with pytest.raises(EnvError, match="more than 20 positions"):
        sokoban(room, room.boxes, room.player)


def test_what_it_cannot_play_it_refuses() -> None:
    """Other games are refused with a sentence, and so is a role that must not act."""
    assert "solver" in known_bots()
    bot = make_bot("solver", "tictactoe")
    env = make(sample_task("tictactoe", {}))
    with pytest.raises(ConfigError, match="bot 'solver' cannot play 'tictactoe'"):
        bot.suits(env)
    with pytest.raises(ConfigError, match="bot 'solver' cannot play 'tictactoe'"):
        bot.act(env, "X", random.Random(0))
    with pytest.raises(EnvError, match="must not act"):
        make_bot("solver", "sudoku").act(make(sample_task("sudoku", {})), "actor", random.Random(0))


def outcome(name: str, index: int, **options: object) -> dict[tuple[str, Role | None], float]:
    env, bot, rng = make(sample_task(name, options, index=index)), make_bot("solver", name), random.Random(index)
    bot.suits(env)
    total = Rewards()
    while seen := env.observe():
        total += env.step({role: bot.act(env, role, rng) for role in seen})
    found: dict[tuple[str, Role | None], float] = {}
    for r in total + env.outcome():
        found[r.name, r.role] = found.get((r.name, r.role), 0.0) + (r.value or 0.0)
    assert not any(key[0] in ("illegal", "lie") for key in found)
    return found


def test_twenty_questions_are_enough() -> None:
    """Halving finds any of 64 objects with all the information that there is."""
    for i in range(30):
        found = outcome("hider_guesser", i, objects=64)
        assert found["win", "guesser"] == 1.0 == -found["win", "hider"]
        assert found["narrowed", "guesser"] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["arithmetic", "grid"])
def test_proposals_are_in_the_form_and_answers_right(kind: str) -> None:
    """Every attempt succeeds, so the proposer, whose tasks are too easy, earns nothing."""
    for i in range(30):
        found = outcome("proposer_solver", i, kind=kind)
        assert found["right", "solver"] == 4.0 and found["frontier", "proposer"] == 0.0


def test_the_spy_is_found_more_often_than_by_chance() -> None:
    """Players who reason from the clues find one spy among four players in clearly more than a quarter of the games."""
    caught = [outcome("social_deduction", i, last_word=False) for i in range(120)]
    share = sum(any(v > 0 for v in found.values()) and list(found.values()).count(1.0) == 3 for found in caught) / 120
    assert share > 0.5

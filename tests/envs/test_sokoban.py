"""Sokoban: pushes follow the rules, drawn rooms are as hard as they say, and .xsb files can be read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from interplay.agents.bots.solver import sokoban
from interplay.envs import make, sample_task
from interplay.envs.games.sokoban import Sokoban
from interplay.envs.games.sokoban_room import bits, move_distances, offsets, parse_xsb, read_xsb
from interplay.errors import ConfigError

MICROBAN = Path(__file__).parents[1] / "data" / "microban.xsb"


def room(tmp_path: Path, text: str, **options: Any) -> Sokoban:
    (tmp_path / "room.xsb").write_text(text)
    found = make(sample_task("sokoban", {"file": str(tmp_path / "room.xsb"), "holdout": False, **options}))
    assert isinstance(found, Sokoban)
    return found


def play(env: Sokoban, moves: str) -> list[float]:
    progress = []
    for move in moves:
        env.step({"planner": ""})
        progress += [r.value for r in env.step({"actor": move}) if r.name == "progress" and r.value is not None]
    return progress


def test_pushing(tmp_path: Path) -> None:
    """A box moves when the cell behind is free, never into a wall; goals show under box and player."""
    env = room(tmp_path, "#######\n#@$ . #\n#    $#\n#.    #\n#######")
    assert env.view().splitlines()[1] == "# @ $ - . - #"
    play(env, "RR")
    assert env.view().splitlines()[1] == "# - - @ * - #"
    play(env, "R")
    assert env.view().splitlines()[1] == "# - - - + $ #"
    assert env.legal_moves() == ["D", "L"]
    play(env, "R")
    assert env.refused and env.view().splitlines()[1] == "# - - - + $ #"


def test_two_boxes_in_a_row_do_not_move(tmp_path: Path) -> None:
    """Only one box is pushed at a time."""
    env = room(tmp_path, "########\n#@$$ ..#\n########")
    before = env.view()
    play(env, "R")
    assert env.refused and env.view() == before


def test_solving_ends_it_and_progress_counts_pushes(tmp_path: Path) -> None:
    """Each push towards the goal earns an equal share; walking earns nothing; a push away takes it back."""
    env = room(tmp_path, "########\n#@$   .#\n#      #\n########", turns=30)
    assert play(env, "RDRRUL") == pytest.approx([0.25, 0, 0, 0, 0, -0.25])
    env = room(tmp_path, "########\n#@$   .#\n########", turns=9)
    assert play(env, "RRRR") == pytest.approx([0.25] * 4)
    assert env.solved and not env.observe()
    assert [r.value for r in env.outcome()] == [1.0]


def test_a_lost_box_counts_as_far_off(tmp_path: Path) -> None:
    """A box in a corner can reach no goal: progress falls, and the puzzle continues to its limit."""
    env = room(tmp_path, "######\n#  . #\n#@$  #\n#    #\n######", turns=5)
    assert play(env, "RR") == pytest.approx([0.5, -1.5]), "from 2 pushes away to lost, which counts −1"
    assert env.level.far(env.boxes) == env.level.width + env.level.height
    assert env.observe()


def test_progress_in_moves_counts_every_step_of_a_shortest_solution(tmp_path: Path) -> None:
    env = room(tmp_path, "#####\n#@  #\n#.$ #\n#   #\n#####", nearer="moves")
    assert play(env, "RR") == pytest.approx([1 / 4, 1 / 4])  # four moves: right, right, down, left
    assert play(env, "L") == pytest.approx([-1 / 4])
    assert play(env, "RDL") == pytest.approx([1 / 4, 1 / 4, 1 / 4])
    assert env.solved
    lost = room(tmp_path, "#####\n#@  #\n#.$ #\n#   #\n#####", nearer="moves")
    assert sum(play(lost, "RD")) < 0  # against the lower wall it can never come back
    assert not lost.over
    ended = room(tmp_path, "#####\n#@  #\n#.$ #\n#   #\n#####", nearer="moves", hopeless="end")
    play(ended, "RD")
    assert ended.over and not ended.solved
    with pytest.raises(ConfigError, match=r"env.hopeless is 'end', but env.nearer is 'pushes'"):
        sample_task("sokoban", {"hopeless": "end"})
    other = tmp_path / "other"  # levels are read from a file once
    other.mkdir()
    with pytest.raises(ConfigError, match=r"env.nearer is 'moves', but a room has 3 boxes; expected at most 2"):
        room(other, "######\n#@...#\n# $$$#\n#    #\n######", nearer="moves")
    with pytest.raises(ConfigError, match=r"a room has 3 boxes; expected at most 2"):
        sample_task("sokoban", {"boxes": 3, "nearer": "moves"})


def test_distances_in_moves_are_those_of_the_solver() -> None:
    for seed in range(20):
        env = make(sample_task("sokoban", {"boxes": 1 + seed % 2, "size": 6}, "train", seed))
        assert isinstance(env, Sokoban)
        level = env.level
        found = move_distances(level.floor, level.goals, level.width)
        for player in bits(level.floor & ~level.boxes):
            shortest = sokoban(level, level.boxes, player, "moves")
            assert found.get((level.boxes, player)) == (None if shortest is None else len(shortest))


def test_drawn_rooms_need_as_many_pushes_as_they_say() -> None:
    """Pulling backwards, breadth first: the pushes of the drawn solution are the fewest there are."""
    for i in range(40):
        env = make(sample_task("sokoban", {"size": 6, "boxes": 1 + i % 2, "walls": 0.2}, index=i))
        assert isinstance(env, Sokoban)
        moves = sokoban(env.level, env.boxes, env.player)
        assert moves is not None
        boxes, player, pushes = env.boxes, env.player, 0
        for move in moves:
            player += offsets(env.level.width)[move]
            if boxes >> player & 1:
                boxes ^= 1 << player | 1 << (player + offsets(env.level.width)[move])
                pushes += 1
        assert pushes == env.difficulty["pushes"] and boxes == env.level.goals


def test_reading_a_collection() -> None:
    """Comments and titles separate levels; ragged rows, both floor symbols and all marks are understood."""
    levels = read_xsb(MICROBAN.read_text())
    assert len(levels) == 6
    rooms = [parse_xsb(text) for text in levels]
    assert [r.boxes.bit_count() for r in rooms] == [2, 3, 2, 3, 4, 3]
    assert [(r.width, r.height) for r in rooms] == [(6, 7), (6, 7), (9, 6), (8, 6), (8, 7), (12, 6)]
    underscores = parse_xsb("####\n#+_###\n#-$- #\n######")
    assert underscores.goals >> underscores.player & 1
    boxoban = "; 0\n####\n#@$.#\n####\n\n; 1\n#####\n#@ $.#\n######\n"
    assert len(read_xsb(boxoban)) == 2


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("####\n#@ #\n####", "1 players, 0 boxes and 0 goals"),
        ("#####\n#@$ #\n#####", "1 players, 1 boxes and 0 goals"),
        ("#####\n#.$ #\n#####", "0 players"),
        ("########\n#@ #$. #\n########", "behind walls"),
    ],
)
def test_levels_that_cannot_be_played_are_refused(tmp_path: Path, text: str, match: str) -> None:
    """A wrong level is named in the error."""
    with pytest.raises(ConfigError, match=match):
        room(tmp_path, text)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """No file, an empty one, or one without a level for the split."""
    with pytest.raises(ConfigError, match="cannot be read"):
        make(sample_task("sokoban", {"file": str(tmp_path / "none.xsb")}))
    with pytest.raises(ConfigError, match="contains no level"):
        room(tmp_path, "; nothing\n")
    text = "####\n#@$.#\n#####"
    refused = 0
    for split in ("train", "validation", "test"):
        (tmp_path / "one.xsb").write_text(text)
        try:
            make(sample_task("sokoban", {"file": str(tmp_path / "one.xsb")}, split))
        except ConfigError as error:
            assert "leave none for this split" in str(error) and "env.holdout = false" in str(error)
            refused += 1
    assert refused == 2, "one level belongs to one split"


def test_a_room_that_is_solved_already_is_refused(tmp_path: Path) -> None:
    (tmp_path / "solved.xsb").write_text("####\n#*@#\n####\n")
    with pytest.raises(ConfigError, match="already solved; expected at least one box"):
        make(sample_task("sokoban", {"file": str(tmp_path / "solved.xsb"), "holdout": False}))


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "marked.xsb").write_text("#####\n#@$.#\n#####\n", encoding="utf-8-sig")
    env = make(sample_task("sokoban", {"file": str(tmp_path / "marked.xsb"), "holdout": False, "team": "single"}))
    env.step({"actor": "R"})
    assert not env.observe() and env.outcome().of("actor")


def test_a_files_levels_are_shared_out_between_the_splits() -> None:
    """With `holdout` no level of a file is in two splits; without it, all splits use all levels."""
    seen = {}
    for split in ("train", "validation", "test"):
        tasks = [sample_task("sokoban", {"file": str(MICROBAN), "holdout": False}, split, i) for i in range(60)]
        seen[split] = {make(task).state().rsplit("\n", 1)[0] for task in tasks}
    assert seen["train"] == seen["validation"] == seen["test"] and len(seen["test"]) == 6


def test_cells_are_bits() -> None:
    """The small set arithmetic that rooms are made of."""
    rng = random.Random(0)
    for _ in range(50):
        cells = {rng.randrange(100) for _ in range(10)}
        assert set(bits(sum(1 << c for c in cells))) == cells

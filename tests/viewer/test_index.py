"""Episodes are found in files of any state: growing, cut off, damaged, without an index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from written import TREE, add_step, tree_episode, write_run

from interplay.errors import InterplayError
from interplay.evaluation.played import Played
from interplay.rollout import records
from interplay.viewer.index import EpisodeIndex


def names(index: EpisodeIndex) -> list[tuple[int, str]]:
    return [(p.step, p.id) for p in index.places]


EXPECTED = [(1, "task-2#0"), (1, "task-3#0"), (2, "task-4#0"), (2, "task-5#0")]


def test_episodes_are_read_by_offset_alone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2)
    index = EpisodeIndex(run / "episodes.jsonl")
    assert index.refresh()
    assert names(index) == EXPECTED
    found = index.find(2, "task-4#0")
    assert found is not None and index.read(found)["id"] == "task-4#0"
    assert index.group(2, "task-5") == [3]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_an_index_that_lacks_lines_is_completed_from_the_file(tmp_path: Path, kept: int) -> None:
    run = write_run(tmp_path / "run", 2)
    listed = run / records.INDEX
    lines = listed.read_text().splitlines(keepends=True)
    listed.write_text("".join(lines[:kept]) + "[12, 'torn")
    index = EpisodeIndex(run / "episodes.jsonl")
    index.refresh()
    assert names(index) == EXPECTED


def test_a_line_that_is_being_written_shows_up_when_it_is_whole(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2)
    (run / records.INDEX).unlink()
    path = run / "episodes.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    index = EpisodeIndex(path)
    assert index.refresh()
    assert names(index) == EXPECTED[:3]
    path.write_bytes(whole)
    index.refresh()
    assert names(index) == EXPECTED
    assert index.damaged == 0


def test_damaged_lines_are_counted_and_the_others_are_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2)
    path = run / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    (run / records.INDEX).unlink()
    bad = [b"\x00\xff garbage\n", b'{"episode": 3}\n', b"[" * 100_000 + b"\n", b'{"step": "x", "episode": {}}\n']
    path.write_bytes(b"".join([bad[0], lines[0], bad[1], *lines[1:3], bad[2], bad[3], lines[3]]))
    index = EpisodeIndex(path)
    index.refresh()
    assert names(index) == EXPECTED
    assert index.damaged == len(bad)


def test_a_resumed_run_that_cuts_its_files_back_is_read_anew(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3)
    index = EpisodeIndex(run / "episodes.jsonl")
    index.refresh()
    before = index.generation
    places = index.places[:2]
    end = places[-1].start + places[-1].size
    (run / "episodes.jsonl").write_bytes((run / "episodes.jsonl").read_bytes()[:end])
    lines = (run / records.INDEX).read_text().splitlines(keepends=True)
    (run / records.INDEX).write_text("".join(lines[:2]))
    for step in range(7, 12):  # it grows past its earlier length before the viewer looks again
        add_step(run, step)
    index.refresh()
    assert index.generation > before
    assert [step for step, _ in names(index)] == [1, 1, *(s for s in range(7, 12) for _ in range(2))]


def test_new_episodes_are_added_without_reading_the_old_ones_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1)
    index = EpisodeIndex(run / "episodes.jsonl")
    index.refresh()
    first, before = index.places[0], index.generation
    add_step(run, 2, TREE)
    index.refresh()
    assert names(index) == EXPECTED
    assert index.places[0] is first and index.generation == before


def test_the_games_of_an_evaluation_are_found_in_their_chunks(tmp_path: Path) -> None:
    played = Played(tmp_path / "eval" / "played.jsonl")
    played.put("one", [tree_episode(1), tree_episode(2)])
    played.put("two", [tree_episode(1)])
    index = EpisodeIndex(tmp_path / "eval" / "played.jsonl")
    index.refresh()
    assert names(index) == [(0, "task-1#0"), (0, "task-2#0"), (1, "task-1#0")]
    assert index.read(1)["task"]["id"] == "task-2"


def test_a_record_of_a_newer_schema_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 1)
    path = run / "episodes.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps({**row, "schema": 99}) + "\n")
    (run / records.INDEX).unlink()
    index = EpisodeIndex(path)
    index.refresh()
    with pytest.raises(InterplayError, match="use a newer version"):
        index.read(0)

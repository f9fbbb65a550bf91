"""Saved games are not repeated: a kill loses only one chunk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from interplay.evaluation.played import Played, fingerprint, key_of
from interplay.types import Episode, Keys, Media, Message, Observation, Policy, Rewards, Task, Turn


def episode(name: str) -> Episode:
    task = Task(name, "tictactoe", 1, {"size": 3})
    return Episode(name, task, 0, {"X": Policy("p")}, [], Rewards.team("win", 0.1 + 0.2))


def test_episodes_come_back_as_they_were(tmp_path: Path) -> None:
    store = Played(tmp_path / "deep" / "played.jsonl")
    store.put("one", [episode("a"), episode("b")])
    store.put("two", [episode("c")])
    for again in (store, Played(tmp_path / "deep" / "played.jsonl")):
        assert again.get("one") == [episode("a"), episode("b")]
        assert again.get("two") == [episode("c")] and again.get("three") is None


@pytest.mark.parametrize("lost", [1, 5, 60])
def test_a_line_cut_off_by_a_kill_is_dropped(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "played.jsonl"
    store = Played(path)
    store.put("one", [episode("a")])
    store.put("two", [episode("b")])
    path.write_bytes(path.read_bytes()[:-lost])
    again = Played(path)
    assert again.get("one") == [episode("a")] and again.get("two") is None
    again.put("two", [episode("c")])
    assert Played(path).get("two") == [episode("c")]


@pytest.mark.parametrize(("old", "new"), [(b'"turns":[', b'"turns":[}'), (b'{"chunk"', b'{"chank"'), (b"]}\n", b"]\n")])
def test_a_damaged_line_costs_itself_alone(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "played.jsonl"
    store = Played(path)
    store.put("one", [episode("a")])
    store.put("two", [episode("b")])
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    again = Played(path)
    assert again.get("one") is None and again.get("two") == [episode("b")]
    again.put("one", [episode("c")])
    assert Played(path).get("one") == [episode("c")] and Played(path).get("two") == [episode("b")]


def test_pictures_are_kept_beside_and_a_lost_one_costs_its_chunk_alone(tmp_path: Path) -> None:
    """An episode whose pictures are missing is played again and not shown in part."""
    picture = Media("image", b"tabby")
    seen = Observation((Message("user", "Look.", media=(picture,)),))
    turn = Turn("t", None, Keys("t", 0, "t", 0, "X", "", "", ""), "bot:first", "1", seen)
    shown = replace(episode("a"), turns=[turn])
    store = Played(tmp_path / "played.jsonl")
    store.put("one", [shown])
    store.put("two", [episode("b")])
    (found,) = Played(tmp_path / "played.jsonl").get("one") or ()
    assert found == shown and found.turns[0].observation.messages[0].media[0].data == b"tabby"
    (tmp_path / "media" / f"{picture.digest}.png").unlink()
    again = Played(tmp_path / "played.jsonl")
    assert again.get("one") is None and again.get("two") == [episode("b")]
    again.put("one", [shown])
    assert again.get("one") == [shown]


def test_weights_are_told_apart_by_their_files(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"123")
    before = fingerprint(str(tmp_path))
    assert fingerprint(str(tmp_path)) == before
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert fingerprint(str(tmp_path)) != before
    assert fingerprint("tiny seed 0") == "tiny seed 0" != fingerprint("tiny seed 1")
    assert key_of(1, "a") != key_of("1a")

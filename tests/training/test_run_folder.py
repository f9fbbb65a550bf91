"""The files of a run: which episodes are kept, how files are rewound, and that ids can be decoded."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from runs import train

from interplay.config import parse
from interplay.models.tiny import build_tokenizer
from interplay.rollout import records
from interplay.rollout.token_texts import TokenTexts
from interplay.training.run_folder import RunFolder
from interplay.types import Credit, Episode, Keys, Observation, Policy, Sample, Task, Turn

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "ppo", "replicas": 2, "kl": 0.1},
    "sampling": {"max_tokens": 4},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "lr": 1e-3},
    "records": {"tensorboard": "off"},
}


def played(count: int, text: str = "") -> list[Episode]:
    sample = Sample("s", (1,), (2,), (0.0,), (0,), text)
    turn = Turn("s", None, Keys("t", 0, "", 0, "X", "", "", ""), "player", text, Observation(()), (sample,))
    return [Episode(f"e{i}", Task("t", "tictactoe", 0), i, {"X": Policy("player")}, [turn]) for i in range(count)]


def folder(path: Path, **section: Any) -> RunFolder:
    return RunFolder(path, parse({**RECIPE, "records": {"tensorboard": "off", **section}}))


@pytest.mark.parametrize(
    ("keep", "wanted", "episodes", "kept"),
    [
        ("first", 3, 10, [0, 1, 2]),
        ("even", 3, 10, [0, 3, 6]),
        ("even", 4, 8, [0, 2, 4, 6]),
        ("even", 5, 5, [0, 1, 2, 3, 4]),
        ("even", 9, 5, [0, 1, 2, 3, 4]),
        ("first", 9, 5, [0, 1, 2, 3, 4]),
        ("even", 1, 5, [0]),
        ("even", 0, 5, []),
        ("first", 0, 5, []),
    ],
)
def test_the_first_episodes_of_a_step_are_kept_or_as_many_at_even_distances(
    tmp_path: Path, keep: str, wanted: int, episodes: int, kept: list[int]
) -> None:
    """Tasks come in order, so the first episodes are those of a few tasks; evenly spaced ones are of all tasks."""
    run = folder(tmp_path, keep=keep, episodes_per_step=wanted)
    run.played(1, played(episodes), Credit())
    run.measured(1, {})
    run.close()
    assert [r.episode.replica for r in records.read(run.episodes)] == kept
    (results,) = (tmp_path / "logs").glob("game_results_*.log")
    assert len(results.read_text().splitlines()) == len(kept), "the logs tell of the same ones"


def test_a_rewound_run_has_no_trace_of_what_came_after(tmp_path: Path) -> None:
    """Metrics, records and index: what is written again is counted once, and found at its place."""
    run = folder(tmp_path)
    run.played(1, played(2), Credit())
    run.measured(1, {"reward": 1.0})
    before = run.offsets()
    files = {path.name: path.read_bytes() for path in (run.metrics, run.episodes, tmp_path / records.INDEX)}
    assert before == {name: len(data) for name, data in files.items()} | {"stream.jsonl": 0} and all(files.values())
    run.played(2, played(3, "a first try"), Credit())
    run.measured(2, {"reward": 2.0})
    run.rewind(before)
    assert {path.name: path.read_bytes() for path in (run.metrics, run.episodes, tmp_path / records.INDEX)} == files
    run.played(2, played(1, "again"), Credit())
    run.measured(2, {"reward": 3.0})
    run.close()
    entries = records.index(run.episodes)
    assert [(e.step, e.id) for e in entries] == [(1, "e0"), (1, "e1"), (2, "e0")]
    assert len((tmp_path / records.INDEX).read_text().splitlines()) == 3
    assert records.read_one(run.episodes, entries[-1]).episode == played(1, "again")[0]
    assert [json.loads(line)["reward"] for line in run.metrics.read_text().splitlines()] == [1.0, 3.0]


def test_a_file_that_lost_lines_is_not_padded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = folder(tmp_path)
    run.played(1, played(1), Credit())
    run.measured(1, {"reward": 1.0})
    noted = run.offsets()
    run.metrics.write_bytes(b"")
    run.rewind(noted)
    run.played(2, played(1), Credit())
    run.measured(2, {"reward": 2.0})
    run.close()
    assert b"\0" not in run.metrics.read_bytes()
    assert [json.loads(line)["reward"] for line in run.metrics.read_text().splitlines()] == [2.0]
    assert "some of its lines are lost" in caplog.text


def test_a_cut_line_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, parse(RECIPE))
    folder.measured(1, {"reward": 0.5})
    noted = folder.offsets()
    folder.metrics.write_bytes(folder.metrics.read_bytes()[:-9])
    folder.rewind(noted)
    folder.measured(2, {"reward": 0.75})
    first, second = folder.metrics.read_text().splitlines()
    assert not first.endswith("}") and json.loads(second)["reward"] == 0.75


def test_a_full_disk_leaves_a_written_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    records.write_whole(path, "first")

    def full(self: Path, text: str, **_: object) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        records.write_whole(path, "second")
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


def test_a_run_that_wrote_nothing_is_rewound_to_nothing(tmp_path: Path) -> None:
    run = folder(tmp_path)
    before = run.offsets()
    assert set(before.values()) == {0}
    run.played(1, played(1), Credit())
    run.measured(1, {})
    run.rewind(before)
    run.close()
    assert records.index(run.episodes) == [] and list(records.read(run.episodes)) == []


def test_the_tokens_of_a_run_can_be_read_with_what_it_left_behind(tmp_path: Path) -> None:
    """Every prompt and reply, as the tokenizer itself decodes them, also of a snapshot. Each policy has a tokenizer."""
    game: dict[str, Any] = {"env": {"name": "matrix"}, "seats": {"p0": "a", "p1": "b"}, "rollout": {"tasks": 8}}
    game["policies"] = {"a": {"base": "tiny-16x1"}, "b": {"base": "tiny-16x1"}}
    game["matchups"] = [{"share": 0.5, "seats": {"p1": "a@start"}}]
    train(tmp_path, {**RECIPE, **game})
    assert sorted(p.name for p in (tmp_path / "tokenizers").iterdir()) == ["a.json", "b.json"]
    texts, tokenizer = TokenTexts(tmp_path), build_tokenizer()
    turns = [t for r in records.read(tmp_path / "episodes.jsonl") for t in r.episode.turns]
    assert {t.policy for t in turns} == {"a", "b", "a@start"}
    for turn in turns:
        for ids in (turn.last.prompt, turn.last.action):
            assert "".join(texts.of(turn.policy, ids)) == tokenizer.decode(ids)


def test_records_hold_what_the_step_was_trained_with(tmp_path: Path) -> None:
    """Values, targets, advantages and reference log-probs of every sample, for each token if there are several."""
    train(tmp_path, RECIPE, "algorithm.level=token", "records.episodes_per_step=99")
    found = list(records.read(tmp_path / "episodes.jsonl"))
    samples = [(s, r.credit) for r in found for t in r.episode.turns for s in t.samples]
    assert len(found) == 4 and samples
    for sample, given in samples:
        size = len(sample.action)
        tables = (given.advantages, given.values, given.targets, given.reference)
        assert [len(table[sample.id]) for table in tables] == [size] * 4  # type: ignore[arg-type]
        assert len(sample.versions) == len(sample.logprobs) == size
    assert {r.step for r in found} == {1}

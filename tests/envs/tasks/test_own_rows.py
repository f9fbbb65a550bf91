"""A user's own questions and answers, from a file or the hub, without changing the package."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interplay import envs
from interplay.cli.main import app
from interplay.cli.prepare import own_rows
from interplay.config import parse
from interplay.envs.tasks.columns import Columns
from interplay.envs.tasks.data import Prepared
from interplay.envs.tasks.prepare import prepare
from interplay.errors import ConfigError, DataError
from interplay.rollout.resolve import resolve

WORDS = ["apple", "bridge", "cloud", "desert", "engine", "forest", "garden", "harbour", "island", "jungle"]


def file_of(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sums(count: int = 200) -> list[dict[str, Any]]:
    asked = (f"What is {i} plus {WORDS[i % 10]}'s {i * i}?" for i in range(count))
    return [{"prompt": text, "gold": {"values": [i + i * i]}} for i, text in enumerate(asked)]


def played(folder: Path, answer: str, index: int = 0, **options: Any) -> float | None:
    """What a team earns that gives this answer to a training row."""
    task = envs.sample_task("math", {"team": "single", "data": str(folder), **options}, "train", index)
    env = envs.make(task)
    while seen := env.observe():
        env.step(dict.fromkeys(seen, f"\\boxed{{{answer}}}"))
    return next(r.value for r in envs.outcome_of(env) if r.name == "correct")


def test_a_file_of_rows_becomes_three_splits_that_share_nothing(tmp_path: Path) -> None:
    source = file_of(tmp_path / "mine.jsonl", [*sums(), sums()[3], {"prompt": " ", "gold": {"values": [1]}}])
    report = prepare("mine.jsonl", source, tmp_path / "out", holdout=0.1, columns=Columns("prompt", "gold.values.0"))
    found = Prepared.open(tmp_path / "out")
    texts = {split: {row["question"] for row in found.rows(split)} for split in ("train", "validation", "test")}
    assert sum(map(len, texts.values())) == sum(report.counts.values()) == 200
    assert not texts["train"] & texts["test"] and not texts["train"] & texts["validation"]
    assert 5 <= len(texts["test"]) <= 40 and 5 <= len(texts["validation"]) <= 40
    assert report.dropped["duplicates"] == 1 and report.dropped["unusable"] == 1
    row = found.rows("train")[0]
    assert played(tmp_path / "out", row["answer"]) in (0.0, 1.0)
    plan = resolve(parse({
        "name": "own", "env": {"name": "math", "team": "pair", "data": str(tmp_path / "out")},
        "policies": {"a": {"base": "tiny"}}, "seats": "a", "algorithm": {"name": "grpo"},
        "eval": {"opponents": ["team"], "success": "correct"},
    }))  # fmt: skip
    assert plan.task(0).data["row"]["question"] in texts["train"]
    assert plan.task(0, "test").data["row"]["question"] in texts["test"]


@pytest.mark.parametrize("count", [3, 5, 10, 20, 40])
def test_a_few_rows_become_three_splits_too(tmp_path: Path, count: int) -> None:
    """A run measures on validation and test rows; by chance, neither might get one of a few rows."""
    source = file_of(tmp_path / "few.jsonl", sums(count))
    columns = Columns("prompt", "gold.values.0")
    report = prepare("few.jsonl", source, tmp_path / "out", columns=columns)
    assert sum(report.counts.values()) == count and report.held_out == count - report.counts["train"]
    assert list(report.counts) == ["train", "validation", "test"] and all(report.counts.values())
    turned = file_of(tmp_path / "turned.jsonl", sums(count)[::-1])
    prepare("turned.jsonl", turned, tmp_path / "again", columns=columns)
    for split in report.counts:  # the order of the rows does not matter
        found = [{r["question"] for r in Prepared.open(tmp_path / f).rows(split)} for f in ("out", "again")]
        assert found[0] == found[1]


def test_answers_in_words_are_compared_as_words(tmp_path: Path) -> None:
    source = file_of(tmp_path / "train.jsonl", [{"q": "Which city is the capital of France?", "a": "Paris"}])
    prepare("x", source, tmp_path / "out", holdout=0, columns=Columns("q", "a", "text"))
    assert played(tmp_path / "out", "the Paris.") == 1.0
    assert played(tmp_path / "out", "Lyon") == 0.0


def test_answers_can_be_compared_by_a_function_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rules.py").write_text("def same_length(gold, answer):\n    return len(gold) == len(answer)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = file_of(tmp_path / "train.jsonl", [{"q": "Say four letters.", "a": "abcd"}])
    prepare("x", source, tmp_path / "out", holdout=0, columns=Columns("q", "a", "my_rules:same_length"))
    assert played(tmp_path / "out", "wxyz") == 1.0 and played(tmp_path / "out", "xyz") == 0.0
    prepare("x", source, tmp_path / "bad", holdout=0, check=False, columns=Columns("q", "a", "my_rules:nothing"))
    with pytest.raises(ConfigError, match=r"compared by 'my_rules:nothing', which cannot be imported"):
        played(tmp_path / "bad", "wxyz")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"prompt": "p", "anwser": "1"}, r"row 1 has no column 'answer'; .*Did you mean 'anwser'\?"),
        ({"prompt": "p", "answer": ["1"]}, r"has a list in 'answer'; expected a text or a number. Name a part of it"),
        ({"prompt": {"a": 1}, "answer": "1"}, r"has a dict in 'prompt'"),
        ([1], r"row 1 is list; expected an object with named fields"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, row: Any, sentence: str) -> None:
    source = file_of(tmp_path / "train.jsonl", [row])
    with pytest.raises(DataError, match=sentence):
        prepare("x", source, tmp_path / "out", columns=Columns("prompt", "answer"))


def test_a_format_of_your_own_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_format.py").write_text(
        "from interplay.envs.tasks.data import Public\n"
        "class Mine(Public):\n    kind = 'math'\n    licence = 'mine'\n    alone = 'train'\n"
        "    ask: str\n    sum: int\n"
        "    def row(self):\n        return {'question': self.ask, 'answer': str(self.sum)}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = file_of(tmp_path / "rows.jsonl", [{"ask": "1+1?", "sum": 2}])
    assert prepare("my_format:Mine", source, tmp_path / "out", holdout=0).counts == {"train": 1}
    assert own_rows("my_format:Mine", source, None, None, "math").folder == "Mine"


def test_a_data_set_of_the_hub_is_read_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the same name replaces the hub."""
    rows = {"train": sums(50), "test": sums(60)[50:]}
    hub = types.SimpleNamespace(
        get_dataset_split_names=lambda name, configuration: [*rows, "extra"],
        load_dataset=lambda name, configuration, split: rows[split],
    )
    monkeypatch.setitem(sys.modules, "datasets", hub)  # type: ignore[arg-type]
    columns = Columns("prompt", "gold.values.0")
    report = prepare("hub:someone/sums:main", None, tmp_path / "out", holdout=0.1, columns=columns)
    assert report.counts["test"] == 10 and report.source == "hub:someone/sums"
    assert own_rows("hub:someone/sums:main", None, "prompt", "gold", "math").folder == "someone-sums-main"


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    source = file_of(tmp_path / "mine.jsonl", sums(20))
    to = str(tmp_path / "out")
    done = CliRunner().invoke(app, ["prepare", str(source), "--to", to])
    assert isinstance(done.exception, ConfigError) and "--question COLUMN and --answer COLUMN" in str(done.exception)
    done = CliRunner().invoke(app, ["prepare", "gsm8k", "--question", "x", "--to", to])
    assert isinstance(done.exception, ConfigError) and "are for your own rows" in str(done.exception)
    done = CliRunner().invoke(
        app, ["prepare", str(source), "--question", "prompt", "--answer", "gold.values.0", "--to", to]
    )
    assert done.exit_code == 0 and "train" in done.stdout
    with pytest.raises(ConfigError, match="--compare is 'words'; expected math, text or"):
        Columns("q", "a", "words")

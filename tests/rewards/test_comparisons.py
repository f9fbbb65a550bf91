"""Files of comparisons and labelled answers: what people write is read as it is meant, or refused with its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interplay.errors import DataError
from interplay.rewards.comparisons import read_answers, read_comparisons
from interplay.types import Message


def _written(folder: Path, text: str) -> Path:
    path = folder / "rows.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def _rows(folder: Path, *rows: Any) -> Path:
    return _written(folder, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def test_a_conversation_of_objects_is_not_read_as_its_keys(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "Be short."}, {"content": "Why?", "role": "user"}]
    (pair,) = read_comparisons(_rows(tmp_path, {"question": asked, "chosen": "a", "rejected": "b"}))
    assert pair.question == (Message("system", "Be short."), Message("user", "Why?"))


@pytest.mark.parametrize("question", [5, None, [], [1, 2], ["ab"], [["user", None]], [{"role": "user"}]])
def test_a_question_of_another_form_is_refused_with_its_row(tmp_path: Path, question: Any) -> None:
    good = {"question": "q", "chosen": "a", "rejected": "b"}
    with pytest.raises(DataError, match=r"rows\.jsonl row 2 has a question that is neither"):
        read_comparisons(_rows(tmp_path, good, {**good, "question": question}))
    with pytest.raises(DataError, match=r"rows\.jsonl row 1 has a question that is neither"):
        read_answers(_rows(tmp_path, {"question": question, "answer": "a", "right": True}))


def test_texts_with_every_kind_of_line_end_are_read(tmp_path: Path) -> None:
    said = "one\u2028two\u0085three\n\x0c"
    (pair,) = read_comparisons(_rows(tmp_path, {"question": said, "chosen": said, "rejected": "no"}))
    assert pair.first == said
    (answer,) = read_answers(_rows(tmp_path, {"question": said, "answer": said, "right": True}))
    assert answer.text == said


def test_empty_lines_carriage_returns_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    row = json.dumps({"question": "q", "chosen": "a", "rejected": "b"})
    found = read_comparisons(_written(tmp_path, f"\ufeff{row}\r\n\r\n \n{row}\n\n"))
    assert [pair.id for pair in found] == ["row 1", "row 4"]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    row = json.dumps({"question": "q", "chosen": "a", "rejected": "b"})
    with pytest.raises(DataError, match="row 2"):
        read_comparisons(_written(tmp_path, f"{row}\n{row[:-3]}\n"))


@pytest.mark.parametrize(
    "row",
    [
        {"question": "q", "answer": "a", "right": 1},
        {"question": "q", "answer": "a", "right": "true"},
        {"model": {"is_correct": True, "solution": "x"}},
        {"question": "q", "model": {"is_correct": True, "solution": None}},
    ],
)
def test_an_answer_without_a_label_a_text_or_a_question_is_refused(tmp_path: Path, row: Any) -> None:
    with pytest.raises(DataError, match=r"row 1 has the fields .* right \(true or false, without quotes\)"):
        read_answers(_rows(tmp_path, row))


def test_replies_of_mt_bench_must_be_texts(tmp_path: Path) -> None:
    good = {"input": "q", "output_1": "a", "output_2": "b", "label": [1]}  # no known label is a tie
    assert read_comparisons(_rows(tmp_path, good))[0].label == 0.5
    with pytest.raises(DataError, match="row 1 has an output_1 or output_2 that is not a text"):
        read_comparisons(_rows(tmp_path, {**good, "output_1": 3}))

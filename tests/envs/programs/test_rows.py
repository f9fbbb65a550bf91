"""Rows of a program's file of tasks."""

from __future__ import annotations

import json
from pathlib import Path

from interplay.envs.programs.rows import row


def test_a_text_with_a_line_separator_of_unicode_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    said = "one\u2028two\u0085three"
    lines = [json.dumps({"text": f"{said}{n}"}, ensure_ascii=False) + "\r\n" for n in range(10)]
    path.write_text("".join(lines), encoding="utf-8", newline="")
    assert row(str(path), "test", 0, 0) == {"text": f"{said}9"}

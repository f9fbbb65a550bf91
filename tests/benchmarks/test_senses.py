"""The benchmark of an engine that sees, with its small model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch


def test_pictures_and_text_are_measured_with_prompts_of_one_length(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL")
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")  # it uses another script there
    script = load_script("benchmarks/senses.py")
    size = {**script.SMALL, "requests": 4, "tokens": 4, "gap_requests": 2}
    found: dict[str, float] = {}
    script.measure(size, "cpu", torch.float32, lambda what, value, unit: found.update({what: value}), False)
    # 4 × 4 tokens for the picture, 40 letters, and the marks around them.
    assert found["tokens of a prompt"] == 16 + 44
    assert found["largest gap of engine and learner"] < 1e-4
    share, with_processor = found["pictures, share of text"], found["with processor, share of text"]
    assert 0 < with_processor < share
    assert share == pytest.approx(100 * found["pictures"] / found["text"])

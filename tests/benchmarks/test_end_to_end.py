"""The cold start: a new program up to its first training step."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from interplay.models.locate import locate


@pytest.mark.slow
def test_a_cold_start_is_timed_from_the_start_of_the_program_to_its_first_step(
    load_script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    found = load_script("benchmarks/end_to_end.py").cold(locate("tiny-32x1", 0), 8, 4)
    assert list(found) == ["nothing compiled", "kernels compiled"]
    for at in found.values():
        assert 0 < at["imported"] < at["loaded"] < at["stepped"]
    assert "cold start, kernels compiled: imported after" in capsys.readouterr().out

"""benchmarks/evolve_math.py measures what it says, on the smallest shapes."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.mark.slow
def test_both_workflows_train_on_as_many_tokens_and_play_the_test_split(
    load_script: Callable[[str], ModuleType],
) -> None:
    script = load_script("benchmarks/evolve_math.py")
    small = ["--steps", "1", "--every", "1", "--tasks", "1", "--validation", "2", "--games", "4"]
    found = script.main(["--tiny", *small])
    assert len(found["table"]) == 5
    assert all(row["failed"] == 0 and 0 <= row["low"] <= row["right"] <= row["high"] for row in found["table"].values())
    assert found["tokens"]["start"] >= found["tokens"]["evolved"] > 0 and found["validation_episodes"] > 0

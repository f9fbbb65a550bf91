"""The benchmark of the filler setting runs, and prints a line for each pull."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


def test_a_short_run_is_compared_with_the_exact_answer(load_script: Callable[[str], ModuleType]) -> None:
    script = load_script("benchmarks/filler.py")
    small = ("train.steps=2", "rollout.tasks=4", "policies.learner.base=tiny-32x1", "env.length=4")
    found = [script.run((algorithm, 0.12, 0, small)) for algorithm in ("rloo", "ppo")]
    for one in found:
        assert one["start"]["kl"] == pytest.approx(0.0, abs=1e-6)
        assert one["exact"]["proxy"] > one["start"]["proxy"]
        assert one["start"]["proxy"] < one["run"]["proxy"] < one["exact"]["proxy"]
        assert 0 < one["run"]["kl"] < one["exact"]["kl"]
    lines = script.table(found)
    assert [line.split(",")[0] for line in lines] == ["ppo beta 0.12", "rloo beta 0.12"]

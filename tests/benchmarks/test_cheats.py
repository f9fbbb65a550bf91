"""The measurement of cheats: a free score is found, chance is not taken for one, and few tasks prove nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def cheats(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/cheats.py")


@pytest.mark.parametrize(
    ("worth", "verdict"),
    [
        (lambda index: 0.05, "FREE"),  # always the same, so it is sure
        (lambda index: float(random.Random(index).random() < 0.06), "FREE"),  # rarely, but much
        (lambda index: 0.0, "none"),
        (lambda index: -0.2, "none"),
        (lambda index: random.Random(index).choice((-0.5, 0.5)), "open"),  # nothing on average, but it varies
    ],
)
def test_a_cheat_is_measured_until_it_can_be_told_from_nothing(
    cheats: ModuleType, monkeypatch: pytest.MonkeyPatch, worth: Callable[[int], float], verdict: str
) -> None:
    def earned(name: str, entry: Any, index: int, cheating: dict[str, Any], role: str) -> float:
        return worth(index) if cheating else 0.0

    monkeypatch.setattr(cheats, "earned", earned)
    lines = cheats.measured("kuhn", cheats.CHEATS["kuhn"], seconds=60, most=4096)
    assert {one.free for one in lines} == {verdict}
    assert all(one.tasks == (4096 if verdict != "none" else one.tasks) >= 32 for one in lines)


def test_a_few_tasks_that_all_agree_prove_little(cheats: ModuleType) -> None:
    gain = cheats.Gain("p0", "empty", None)
    for _ in range(32):
        gain.add(0.0)
    assert cheats.line(gain).free == "open" and gain.width == pytest.approx(1.96 / 32)
    for _ in range(170):
        gain.add(0.0)
    assert cheats.line(gain).free == "none"

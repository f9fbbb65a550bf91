"""What the prompt of Hanabi shows is enough for the rules of the bot, and random moves cost the team its score."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


def test_the_rules_play_from_the_prompt_as_well_as_with_memory_and_random_moves_cost_points(
    load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["hanabi.py", "--games", "20"])
    load_script("benchmarks/hanabi.py").main()
    lines = capsys.readouterr().out.splitlines()
    memory, prompt, *noisy = (float(line[26:32]) for line in lines)
    assert len(noisy) == 5 and memory > 5 and prompt > 5 and noisy[-1] < 3

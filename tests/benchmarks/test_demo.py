"""`benchmarks/demo.py`: two checkouts by turns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest


def test_old_and_new_take_turns_and_are_compared_pair_by_pair(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = load_script("benchmarks/demo.py")
    seconds = iter([10.0, 8.0, 20.0, 10.0])
    ran: list[tuple[Path, Path, list[str]]] = []

    def train(tree: Path, recipe: Path, threads: int, overrides: Sequence[str]) -> object:
        ran.append((tree, recipe, [*overrides]))
        cpu = next(seconds)
        return module.Trained(cpu, 2 * cpu, 0.9, 0.6)

    monkeypatch.setattr(module, "train", train)
    given = ["demo.py", "--old", str(tmp_path), "--recipe", "old", "--pairs", "2", "--set", "train.steps=3"]
    monkeypatch.setattr(sys, "argv", given)
    module.main()
    recipe = tmp_path / "recipes/tictactoe/demo.toml"
    turns = [(tree, seed) for seed in ("seed=0", "seed=1") for tree in (tmp_path, module.ROOT)]
    assert ran == [(tree, recipe, [seed, "train.steps=3"]) for tree, seed in turns]
    out = capsys.readouterr().out
    assert "cpu, new / old: 0.800  0.500; median 0.650" in out
    assert "median of 2, old: 15.0 s of CPU, 30.0 s" in out and "60.0% draws against perfect play" in out


def test_a_share_is_over_both_seats(load_script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    module = load_script("benchmarks/demo.py")
    assert module._share(tmp_path, "bot:random", "wins") is None, "the run was not evaluated"
    seats = [("X", "bot:random", 9), ("O", "bot:random", 5), ("X", "bot:minimax", 0)]
    rows = [{"role": role, "opponent": who, "wins": wins, "games": 10} for role, who, wins in seats]
    (tmp_path / "report.json").write_text(json.dumps({"results": {"before": [], "after": rows}}))
    assert module._share(tmp_path, "bot:random", "wins") == 0.7

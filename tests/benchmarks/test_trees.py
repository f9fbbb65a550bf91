"""`benchmarks/trees.py`: leaving out playouts changes no game."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from interplay.config import load
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer

ROOT = Path(__file__).parents[2]


def test_the_same_games_for_fewer_tokens(
    load_script: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After imitation, candidates are often equal, so there are playouts to leave out."""
    overrides = [
        "device=cpu", "env.size=2", "env.line=2", "sampling.legal=true", "warmstart.bot=bot:first", "rollout.tasks=2",
        "warmstart.episodes=200", "train.steps=1", "eval.every=0", "eval.games=2", "records.tensorboard=off",
        "algorithm.candidates=3",
    ]  # fmt: skip
    trainer = Trainer(resolve(load(ROOT / "recipes" / "tictactoe" / "demo.toml", overrides)), tmp_path)
    trainer.train()
    trainer.close()
    monkeypatch.setattr(sys, "argv", ["trees.py", str(tmp_path), "--tasks", "4"])
    capsys.readouterr()
    load_script("benchmarks/trees.py").main()
    out = capsys.readouterr().out
    every, differing = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) tokens", out))
    assert "the same games" in out and differing < every

"""Makes a run for a test, and reads the files that it wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interplay.config import parse
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer
from interplay.training.tries import Example
from interplay.types import Sample


def make(folder: Path, data: Mapping[str, Any], *overrides: str) -> Trainer:
    return Trainer(resolve(parse(data, overrides)), folder)


def train(folder: Path, data: Mapping[str, Any], *overrides: str, observer: Observer | None = None) -> Trainer:
    """Run to the end (or to an exception) and close."""
    trainer = make(folder, data, *overrides)
    trainer.observer = observer or Observer()
    try:
        trainer.train()
    finally:
        trainer.close()
    return trainer


class Killed(Exception):
    """Simulates a kill: no code of the trainer runs after it."""


def killed_at(step: int) -> Observer:
    def stepped(now: int, metrics: Mapping[str, float]) -> None:
        if now == step:
            raise Killed

    return Observer(stepped=stepped)


def rows(folder: Path) -> list[dict[str, Any]]:
    """The metrics, less what a clock measured."""
    timed = ("time", "tokens_per_second", "memory_gib")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in row.items() if k not in timed and "seconds" not in k and "idle" not in k} for row in lines
    ]


def example(
    name: str, prompt: Sequence[int], action: Sequence[int], extends: str | None = None, **credit: Any
) -> Example:
    """A sample with credit, whose log-probs do not come from an engine."""
    size = len(action)
    sample = Sample(name, tuple(prompt), tuple(action), (-1.0,) * size, (0,) * size, "", extends=extends)
    return Example(**{"policy": "player", "sample": sample, "advantage": 1.0, **credit})


def resampled(one: Example, **changes: Any) -> Example:
    """The same credit for a sample with these changes."""
    return replace(one, sample=replace(one.sample, **changes))

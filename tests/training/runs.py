"""Makes a run for a test, reads the files that it wrote, and says how far rounding may move gradients."""

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
    """No checkpoint is left out because a busy machine took more than a second to write the one before."""
    return Trainer(resolve(parse(data, ("checkpoint.share=1", *overrides))), folder)


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


def rounding(model: Any, tokens: int) -> float:
    """How far apart two gradients may be that are the same sums in another order, as a share of their norm.

    The order of a sum of n numbers in fp32 changes it by at most n·u of the sum of their absolute values, u = 2^-24
    (Higham, Accuracy and Stability of Numerical Algorithms, sec. 4.2). Such errors add up from the loss to a weight:
    over the products of every layer, forward and backward, over the output layer, and over the tokens that use the
    weight.
    """
    c = model.config
    layer = (
        3 * c.hidden_size + c.head_dim + tokens + c.intermediate_size
    )  # q/k/v, out and gate/up; scores; values; down
    return (2 * c.num_hidden_layers * layer + c.hidden_size + c.vocab_size + tokens) * 2.0**-24

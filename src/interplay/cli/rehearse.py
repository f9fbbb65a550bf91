"""How long a run would take: a few steps of it are run in a folder that is then removed, and scaled up.

This is a measurement on this machine, and it is rough: replies get longer or shorter as a policy learns.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import Any

from rich.console import Console

from interplay.config import Recipe, load
from interplay.errors import counted
from interplay.rollout.resolve import resolve

_STEPS, _GAMES, _EPISODES = 3, 8, 64  # of the rehearsal


@dataclass(frozen=True)
class Rehearsal:
    """The parts of a run in seconds, and the most memory in bytes that the rehearsal used."""

    imitation: float
    step: float
    steps: int
    measuring: float
    peak: int

    @property
    def seconds(self) -> float:
        return self.imitation + self.steps * self.step + self.measuring

    def __str__(self) -> str:
        from interplay.training.machine import size_text

        return (
            f"takes about {time_text(self.seconds)} here (imitation {time_text(self.imitation)}, "
            f"{counted(self.steps, 'step')} of {self.step:.2g} s, measuring {time_text(self.measuring)}); "
            f"{_STEPS} steps used at most {size_text(self.peak)}"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": self.seconds}


def time_text(seconds: float) -> str:
    """A duration for people."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def rehearse(path: str, overrides: Sequence[str]) -> Rehearsal:
    """Run a few steps of a recipe, with few games and little imitation, and scale their times to the whole recipe. All
    policies learn in these steps, also those that the recipe freezes at first."""
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.cli.session import Session
    from interplay.training.machine import peak_bytes

    whole = load(path, overrides)
    short = load(path, [*overrides, *_shorter(whole)])
    unmeasured = short.checkpoint.model_copy(update={"best": None})  # its metric comes from a short evaluation
    learning = {name: policy.model_copy(update={"frozen": []}) for name, policy in short.policies.items()}
    short = short.model_copy(update={"checkpoint": unmeasured, "policies": learning})
    with tempfile.TemporaryDirectory(prefix="interplay-") as folder:
        session = Session(Console(quiet=True), resolve(short), Path(folder))
        session.run()
        text = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    step = (rows[-1]["time"] - rows[0]["time"]) / max(1, len(rows) - 1) if len(rows) > 1 else session.trainer.seconds
    imitation = 0.0
    if whole.warmstart is not None and short.warmstart is not None:
        imitation = session.imitation * whole.warmstart.episodes / short.warmstart.episodes
    steps = _steps(whole, rows[-1])
    return Rehearsal(imitation, step, steps, _measuring(session.measuring, whole, short, steps), peak_bytes())


def _shorter(recipe: Recipe) -> list[str]:
    out = [f"train.steps={min(_STEPS, recipe.train.steps)}", f"eval.games={min(_GAMES, recipe.eval.games)}",
           "eval.every=0", "records.wandb=off"]  # fmt: skip
    if recipe.warmstart is not None:
        out.append(f"warmstart.episodes={min(_EPISODES, recipe.warmstart.episodes)}")
    return out


def _steps(recipe: Recipe, last: Mapping[str, float]) -> int:
    """The number of steps of a run. A budget of tokens ends it earlier; this assumes that later steps use as many
    tokens as those of the rehearsal."""
    train = recipe.train
    if not train.budget_tokens:
        return train.steps
    names = [train.budget_policy] if train.budget_policy else list(recipe.policies)
    tokens = sum(last.get(f"{name}/tokens", 0.0) for name in names) / last["step"]
    return train.steps if not tokens else min(train.steps, ceil(train.budget_tokens / tokens))


def _measuring(spent: Mapping[str, float], whole: Recipe, short: Recipe, steps: int) -> float:
    """The time of all evaluations: those before and after, and the short ones between."""
    every, games = whole.eval.every, whole.eval.games / short.eval.games
    total = sum(spent.values()) * games
    if every and whole.eval.opponents:
        each = max(spent.values(), default=0.0) / short.eval.games / len(whole.eval.opponents)
        total += (steps // every) * whole.eval.short_games * each
    return total

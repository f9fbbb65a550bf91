"""Train and evaluate from Python, as the commands of the same names do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console

from interplay.api.loop import finished
from interplay.api.run import TrainedRun
from interplay.cli.evaluate import evaluate_run
from interplay.cli.quiet import quiet_libraries
from interplay.cli.train import new_folder, refuse_used
from interplay.config import Recipe, load, parse
from interplay.errors import ConfigError
from interplay.evaluation.suite import Report
from interplay.rollout.resolve import resolve
from interplay.training.folder_lock import alone

RecipeLike = Recipe | Mapping[str, Any] | str | PathLike[str]


def recipe(source: RecipeLike, *changes: str) -> Recipe:
    """Make a recipe from a TOML file, a run folder, a dict or another recipe, with changes such as "train.steps=10"."""
    if isinstance(source, Recipe):
        return parse(source.model_dump(), changes)
    if isinstance(source, Mapping):
        return parse(source, changes)
    return load(os.fspath(source), changes)


def train(
    source: RecipeLike,
    *changes: str,
    run: str | PathLike[str] | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> TrainedRun:
    """Train the policies of a recipe, and return the run.

    `run` is the folder of the run (default runs/NAME-DATE). With `resume`, training continues from the newest
    checkpoint. Ctrl-C (in a notebook: interrupting the cell) saves a checkpoint and ends the run. With `quiet`, nothing
    is printed.
    """
    if resume and run is None and _folder(source) is None:
        raise ConfigError("resume has no effect without a run folder; give run, or the folder in place of the recipe.")
    plan = resolve(recipe(source, *changes))
    folder = Path(run) if run is not None else _folder(source) or new_folder(plan.recipe)
    refuse_used(folder, resume)
    quiet_libraries()
    from interplay.cli.session import Session

    with alone(folder):
        session = Session(Console(quiet=quiet), plan, folder)
        finished(session.run, session.interrupt.ask)
    return TrainedRun(folder)


def _folder(source: RecipeLike) -> Path | None:
    """Return the run folder that `source` names, or None if it does not name one."""
    return Path(source) if isinstance(source, str | PathLike) and Path(source).is_dir() else None


def evaluate(
    source: str | PathLike[str],
    *changes: str,
    checkpoint: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    quiet: bool = False,
) -> Report:
    """Evaluate the policies of a run, or the untrained policies of a recipe file, on held-out tasks. Write the tables
    to `out` (default: the folder eval in the run folder) and return them."""
    paths = [None if path is None else Path(path) for path in (checkpoint, out)]
    return finished(lambda: evaluate_run(Console(quiet=quiet), os.fspath(source), changes, *paths))

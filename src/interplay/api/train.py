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
from interplay.cli.train import alone, new_folder, refuse_used
from interplay.config import Recipe, load, parse
from interplay.evaluation.suite import Report
from interplay.rollout.resolve import resolve

RecipeLike = Recipe | Mapping[str, Any] | str | PathLike[str]


def recipe(source: RecipeLike, *changes: str) -> Recipe:
    """A recipe from a TOML file, a run folder, a table or another recipe, with changes such as "train.steps=10"."""
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

    `run` is its folder (default runs/NAME-DATE). With `resume` it goes on from the newest checkpoint. Ctrl-C (in a
    notebook: interrupting the cell) ends it with a checkpoint. `quiet` prints nothing.
    """
    plan = resolve(recipe(source, *changes))
    folder = Path(run) if run is not None else _folder(source) or new_folder(plan.recipe)
    refuse_used(folder, resume)
    quiet_libraries()
    from interplay.cli.session import Session

    with alone(folder):
        session = Session(Console(quiet=quiet), plan, folder)
        finished(session.run, session.trainer.interrupt.ask)
    return TrainedRun(folder)


def _folder(source: RecipeLike) -> Path | None:
    """The run folder that a source names, if it names one."""
    return Path(source) if isinstance(source, str | PathLike) and Path(source).is_dir() else None


def evaluate(
    source: str | PathLike[str],
    *changes: str,
    checkpoint: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    quiet: bool = False,
) -> Report:
    """Measure the policies of a run (or of a recipe file, untrained) on held-out tasks. Writes the tables to `out`
    (default: the folder eval in the run folder) and returns them."""
    paths = [None if path is None else Path(path) for path in (checkpoint, out)]
    return finished(lambda: evaluate_run(Console(quiet=quiet), os.fspath(source), changes, *paths))

"""`interplay train`: checks the recipe and the run folder, then starts a `Session`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from interplay.config import Recipe, load
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan
from interplay.training.folder_lock import alone
from interplay.training.interrupt import Interrupt


def train_recipe(console: Console, path: str, overrides: Sequence[str], run: Path | None, resume: bool) -> bool:
    """Trains, and returns whether the run is finished. With `resume`, a run without a checkpoint starts from the
    beginning. A scheduler's signal that comes while libraries and models are loaded ends the run after that."""
    interrupt = Interrupt()
    with interrupt.heard(keyboard=False):
        return _trained(console, *_chosen(path, overrides, run, resume), interrupt)


def _chosen(path: str, overrides: Sequence[str], run: Path | None, resume: bool) -> tuple[RunPlan, Path]:
    """What is trained, and the folder of the run."""
    recipe = load(source_of(path, run, resume), overrides)
    plan = resolve(recipe)
    folder = run or (Path(path) if Path(path).is_dir() else new_folder(recipe))
    refuse_used(folder, resume)
    return plan, folder


def source_of(path: str, run: Path | None, resume: bool) -> str | Path:
    """The recipe or run folder whose recipe is trained: that of the run which is resumed, else that of `path`."""
    if not resume or Path(path).is_dir():
        return path
    if run is None:
        raise ConfigError(
            f"--resume has no effect without a run folder; add --run FOLDER, or name the folder in place of '{path}'."
        )
    return run if (run / "run.json").is_file() else path


def _trained(console: Console, plan: RunPlan, folder: Path, interrupt: Interrupt) -> bool:
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.cli.session import Session

    with alone(folder):
        return Session(console, plan, folder, interrupt).run()


def new_folder(recipe: Recipe) -> Path:
    """The default folder of a new run."""
    return Path("runs") / f"{recipe.name}-{time.strftime('%Y%m%d-%H%M%S')}"


def refuse_used(folder: Path, resume: bool) -> None:
    """Refuse a folder that already contains a run, unless that run is resumed."""
    if (folder / "checkpoints").exists() and not resume:
        raise ConfigError(
            f"run folder '{folder}' already contains a run; add --resume to continue it, or choose another --run."
        )

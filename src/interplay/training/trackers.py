"""Trackers beside metrics.jsonl: TensorBoard and Weights & Biases. A metric has the same name in all three."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from interplay.config import Recipe
from interplay.errors import ConfigError


class Tracker(Protocol):
    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, exit_code: int) -> None:
        """End the record of a run. Its exit code is 0 if the run is finished."""
        ...


def trackers(folder: Path, recipe: Recipe) -> list[Tracker]:
    """The trackers that a recipe asks for. TensorBoard is also used if it is installed and not turned off."""
    section = recipe.records
    found: list[Tracker] = []
    if section.tensorboard != "off" and _installed("tensorboard", section.tensorboard == "on"):
        found.append(TensorBoard(folder))
    if section.wandb != "off" and _installed("wandb", True):
        found.append(WeightsAndBiases(folder, recipe))
    return found


def _installed(package: str, required: bool) -> bool:
    if find_spec(package) is not None:
        return True
    if required:
        raise ConfigError(
            f"records.{package} is on, but the package is not installed: pip install 'interplay[{package}]'."
        )
    return False


class TensorBoard:
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(folder / "tensorboard")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._board.add_scalar(name, value, step)

    def close(self, exit_code: int) -> None:
        self._board.close()


class WeightsAndBiases:
    """A resumed run continues its page. Steps that it repeats after a checkpoint are already there, and W&B ignores
    them."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        import wandb

        section = recipe.records
        settings: dict[str, Any] = {
            "project": section.wandb_project,
            "name": folder.name,
            "id": sha256(str(folder.resolve()).encode()).hexdigest()[:16],
            "resume": "allow",
            "mode": section.wandb,
            "dir": str(folder),
            "config": recipe.model_dump(),
        }
        try:
            self._run = wandb.init(**settings)
        except wandb.Error as e:  # no key, or the server cannot be reached
            raise ConfigError(
                f"records.wandb is {section.wandb}, but Weights & Biases could not be started: {str(e).rstrip('. ')}. "
                "Log in with `wandb login`, or set WANDB_API_KEY; records.wandb=offline needs neither."
            ) from e

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self, exit_code: int) -> None:
        self._run.finish(exit_code=exit_code)

"""Reads a run folder from Python: its recipe, its metrics as a data frame, and its episodes as records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from interplay.config import Recipe, load
from interplay.errors import ConfigError
from interplay.rollout import records
from interplay.rollout.records import Record
from interplay.training.runs_below import is_run, runs_below

FrameLibrary = Literal["pandas", "polars"]


class TrainedRun:
    """The files of a run, which can be read while the run trains. Functions that take the path of a run folder also
    take this object.

    >>> run = ip.run("runs/demo")                           # doctest: +SKIP
    >>> run.metrics()[["step", "reward"]].plot(x="step")    # doctest: +SKIP
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        if not is_run(self.folder):
            raise ConfigError(
                f"folder '{folder}' has no run.json; expected the folder of a run that interplay train started."
            )

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"<run {self.folder}: {self.recipe.name}, {self.step} of {self.recipe.train.steps} steps>"

    @cached_property
    def about(self) -> dict[str, Any]:
        """The contents of run.json: the resolved recipe, the seed, the versions and the hardware."""
        found = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found

    @cached_property
    def recipe(self) -> Recipe:
        return load(self.folder)

    @property
    def step(self) -> int:
        """The last step whose metrics were written."""
        rows = self.rows()
        return int(rows[-1]["step"]) if rows else 0

    @property
    def report(self) -> dict[str, Any] | None:
        """The contents of report.json (results before and after training). None if there are no results yet."""
        path = self.folder / "report.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def rows(self) -> list[dict[str, float]]:
        """Return the metrics of each step. Damaged lines are left out, and so is an incomplete last line, which is
        still being written."""
        return records.metric_rows(self.folder / "metrics.jsonl")

    def metrics(self, library: FrameLibrary | None = None) -> Any:
        """Return a data frame with one row for each step. It uses pandas, or polars if pandas is not installed."""
        wanted: Sequence[FrameLibrary] = ("pandas", "polars") if library is None else (library,)
        for name in wanted:
            try:
                if name == "pandas":
                    import pandas

                    return pandas.DataFrame(self.rows())
                import polars

                return polars.DataFrame(self.rows(), infer_schema_length=None)
            except ImportError:
                continue
        raise ConfigError(
            f"{' and '.join(wanted)} {'is' if len(wanted) == 1 else 'are'} not installed; pip install {wanted[0]}, or "
            "use rows() for a list of dictionaries."
        )

    def episodes(self, step: int | None = None) -> Iterator[Record]:
        """Yield the recorded episodes with their credit, in the order in which they were written. With `step`, yield
        only the episodes of that step; other episodes are not read."""
        path = self.folder / "episodes.jsonl"
        for entry in records.index(path) if path.is_file() else ():
            if step is None or entry.step == step:
                yield records.read_one(path, entry)


def run(folder: str | PathLike[str]) -> TrainedRun:
    """Return the run in a folder."""
    return TrainedRun(folder)


def runs(folder: str | PathLike[str] = "runs") -> list[TrainedRun]:
    """Return every run in a folder, also those of folders inside it, sorted by path."""
    return [TrainedRun(path) for path in runs_below(Path(folder))]

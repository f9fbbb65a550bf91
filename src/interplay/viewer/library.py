"""The runs that the viewer shows: the given folders, or those inside them. A run that begins later shows up too."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from interplay.errors import ConfigError, InterplayError, did_you_mean
from interplay.training.runs_below import is_run, runs_below
from interplay.viewer.run import RunReader


class Library:
    def __init__(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(
                    f"'{folder}' is no folder; expected a run folder, or a folder that holds runs. interplay train and "
                    "interplay demo write runs into the folder runs."
                )
        self.folders = [folder.resolve() for folder in folders]
        self._runs: dict[Path, RunReader] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[RunReader]:
        """All runs, the one that was written to last first."""
        with self._lock:
            for folder in self.folders:
                for run in runs_below(folder):
                    if run not in self._runs:
                        self._runs[run] = RunReader(run, self._key(run, folder))
            for gone in [run for run in self._runs if not is_run(run)]:
                del self._runs[gone]
            return sorted(self._runs.values(), key=lambda run: (-run.updated, run.key))

    def _key(self, run: Path, given: Path) -> str:
        """The path of the run inside the given folder, with ~ for /. If another given folder has a run of that name,
        the names of the folders above it come before it."""
        taken = {reader.key for reader in self._runs.values()}
        count = max(1, len(run.parts) - len(given.parts))
        while (key := "~".join(run.parts[-count:])) in taken and count < len(run.parts):
            count += 1
        return key

    def run(self, key: str) -> RunReader:
        runs = {run.key: run for run in self.runs()}
        if key not in runs:
            raise InterplayError(f"there is no run '{key}'; {did_you_mean(key, runs)}")
        return runs[key]

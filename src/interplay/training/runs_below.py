"""The run folders inside a folder. `interplay view`, `interplay runs` and `ip.runs` all find runs with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_DEPTH = 4  # a study keeps its runs in OUT/STUDY/ARM/seed-N


def runs_below(folder: Path) -> Iterator[Path]:
    """The folder itself if it is a run; otherwise the runs inside it, at most four folders deep and sorted by name.
    Folders inside a run and hidden folders are not searched."""
    return _runs(folder, _DEPTH)


def is_run(folder: Path) -> bool:
    return (folder / "run.json").is_file()


def _runs(folder: Path, depth: int) -> Iterator[Path]:
    if is_run(folder):
        yield folder
    elif depth:
        try:
            with os.scandir(folder) as entries:
                inside = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
        except OSError:  # removed just now, or not to be read by us
            return
        for name in inside:
            yield from _runs(folder / name, depth - 1)

"""The work of an experiment: the runs of its studies and the games of their arenas, several at a time.

Work is done seed by seed over all studies, so that pairs of runs are complete early; an arena is played as soon as its
runs are done. What is written already is not done again, so that an experiment that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from interplay.publishing.arena import arena_left, play_arena
from interplay.publishing.experiment import TESTED, begin, late, one_run, run_folder
from interplay.publishing.study import Study


@dataclass(frozen=True)
class ExperimentPace:
    """How many runs are done side by side, each on one thread, and after how many seconds nothing new is begun and
    runs stop at their next step."""

    jobs: int = 1
    seconds: float | None = None


@dataclass(frozen=True)
class StudyCall:
    """A study as it was called for: the file, the changes, the number of seeds, and the folder of its runs."""

    path: Path
    changes: tuple[str, ...]
    seeds: int | None
    folder: Path

    def study(self) -> Study:
        return Study.read(self.path, self.changes, self.seeds)


@dataclass
class Agenda:
    """What is left to do. `begun` has what was handed out already."""

    plans: Sequence[tuple[StudyCall, Study]]
    begun: set[tuple[Path, str, int]] = field(default_factory=set)

    def following(self) -> tuple[StudyCall, str, int | None] | None:
        """The next piece of work: the name of an arena file, or an arm and a seed."""
        for given, study in self.plans:
            for name in arena_left(study, given.folder):
                if self._take(given, name, -1):
                    return given, name, None
        for given, arm, seed in self.runs():
            if self._take(given, arm, seed):
                return given, arm, seed
        return None

    def _take(self, given: StudyCall, name: str, seed: int) -> bool:
        key = (given.folder, name, seed)
        new = key not in self.begun
        self.begun.add(key)
        return new

    def runs(self) -> Iterator[tuple[StudyCall, str, int]]:
        """Every run that is not done, seed by seed over all studies."""
        ordered = sorted(
            (study.section.seeds.index(seed), place, arm, seed)
            for place, (_, study) in enumerate(self.plans)
            for arm, seed in study.runs
        )
        for _, place, arm, seed in ordered:
            given = self.plans[place][0]
            if not (run_folder(given.folder, arm, seed) / TESTED).is_file():
                yield given, arm, seed


def run_studies(
    files: Sequence[Path],
    out: Path,
    changes: Sequence[str] = (),
    seeds: int | None = None,
    pace: ExperimentPace | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Study]:
    """Do what is left of some studies; `seeds` takes only so many seeds of each."""
    pace = pace or ExperimentPace()
    plans = []
    for file in files:
        study = Study.read(file, changes, seeds)
        given = StudyCall(file, tuple(changes), seeds, out / study.section.name)
        plans.append((given, study))
    for given, study in plans:
        begin(study, given.folder)
    agenda = Agenda(plans)
    for given, study in plans:
        left = sum(one.folder == given.folder for one, _, _ in agenda.runs())
        told(f"{study.section.name}: {len(study.runs)} runs, {left} left")
    until = None if pace.seconds is None else time.time() + pace.seconds
    if pace.jobs == 1:
        while not late(until) and (work := agenda.following()) is not None:
            told(_done(*work, until))
    else:
        _side_by_side(agenda, pace.jobs, until, told)
    return [study for _, study in plans]


def _side_by_side(agenda: Agenda, jobs: int, until: float | None, told: Callable[[str], None]) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    running: set[Future[str]] = set()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and not late(until) and (work := agenda.following()) is not None:
                running.add(pool.submit(_done, *work, until))
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for one in finished:
                told(one.result())


def _done(given: StudyCall, name: str, seed: int | None, until: float | None) -> str:
    import torch

    torch.set_num_threads(1)
    study = given.study()
    if seed is None:
        return play_arena(study, given.folder, name, until)
    return one_run(study, given.folder, name, seed, until)

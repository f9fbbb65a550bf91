"""The work of an experiment: the runs of its studies and the games of their arenas, several at a time.

Work is done seed by seed over all studies, so that pairs of runs are complete early; an arena is played as soon as its
runs are done. Finished work is not repeated, so an experiment that was stopped continues where it stopped.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path

from interplay.errors import InterplayError, counted
from interplay.publishing.arena import arena_left, play_arena
from interplay.publishing.experiment import TESTED, begin, check_measures, end_when, ended_by, late, one_run, run_folder
from interplay.publishing.study import Study
from interplay.rollout.garbage import load_libraries
from interplay.training.interrupt import Interrupt, Interrupted

# The share of a GPU's memory that is left for CUDA itself, for each process. On an H200 (140 GiB), a process held about
# 1 GiB between two runs.
CONTEXTS = 0.01


@dataclass(frozen=True)
class ExperimentPace:
    """How many runs are done side by side, each on one thread, and after how many seconds nothing new is begun and
    runs stop at their next step. With `cells`, only the named STUDY/ARM are run: all seeds of the first group before
    those of the next group. With `go_on`, a run that fails is reported, and the others are still run. `interrupt`
    says whether a signal ended the experiment early."""

    jobs: int = 1
    seconds: float | None = None
    cells: tuple[tuple[str, ...], ...] | None = None
    go_on: bool = False
    interrupt: Interrupt = field(default_factory=Interrupt)


@dataclass(frozen=True)
class StudyCall:
    """What the command says about one study: the file, the changes, the number of seeds, and the folder of its runs."""

    path: Path
    changes: tuple[str, ...]
    seeds: int | None
    folder: Path

    def study(self) -> Study:
        return Study.read(self.path, self.changes, self.seeds)


Work = tuple[StudyCall, str, int | None]


@dataclass
class Agenda:
    """What is left to do. `begun` has what was handed out already."""

    plans: Sequence[tuple[StudyCall, Study]]
    begun: set[tuple[Path, str, int]] = field(default_factory=set)
    cells: tuple[tuple[str, ...], ...] | None = None

    def following(self) -> Work | None:
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
        """Every run that is not done, group by group of `cells`, and in a group seed by seed over all studies."""
        ordered = sorted(
            (group, study.section.seeds.index(seed), place, list(study.section.arms).index(arm), arm, seed)
            for place, (_, study) in enumerate(self.plans)
            for arm, seed in study.runs
            if (group := self._group(study, arm)) is not None
        )
        for _, _, place, _, arm, seed in ordered:
            given = self.plans[place][0]
            if not (run_folder(given.folder, arm, seed) / TESTED).is_file():
                yield given, arm, seed

    def _group(self, study: Study, arm: str) -> int | None:
        """The place of the group that an arm belongs to; None if it is not to be run."""
        groups = ((f"{study.section.name}/{arm}",),) if self.cells is None else self.cells
        return next((i for i, group in enumerate(groups) if f"{study.section.name}/{arm}" in group), None)


def run_studies(
    files: Sequence[Path],
    out: Path,
    changes: Sequence[str] = (),
    seeds: int | None = None,
    pace: ExperimentPace | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> list[Study]:
    """Do the work of some studies that is not finished yet. `seeds` limits the number of seeds of each."""
    named = [Study.read(file, changes, seeds).section.name for file in files]
    calls = [StudyCall(f, tuple(changes), seeds, out / name) for f, name in zip(files, named, strict=True)]
    return run_calls(calls, pace or ExperimentPace(), told)


def run_calls(calls: Sequence[StudyCall], pace: ExperimentPace, told: Callable[[str], None]) -> list[Study]:
    """Do the work that is not finished yet, of studies that may have different changes. After a signal, runs end at
    their next step with a checkpoint, and nothing new is begun."""
    plans = [(given, given.study()) for given in calls]
    for _, study in plans:
        check_measures(study)
    for given, study in plans:
        begin(study, given.folder)
    agenda = Agenda(plans, cells=pace.cells)
    for given, study in plans:
        left = sum(one.folder == given.folder for one, _, _ in agenda.runs())
        told(f"{study.section.name}: {counted(len(study.runs), 'run')}, {left} left")
    until = None if pace.seconds is None else time.time() + pace.seconds
    with pace.interrupt.heard(), ended_by(lambda: pace.interrupt.asked):
        if pace.jobs == 1:
            while not late(until) and (work := agenda.following()) is not None:
                try:
                    told(_done(work, until, pace.go_on))
                except Interrupted as signalled:
                    told(str(signalled))
                    pace.interrupt.ask()
        else:
            _side_by_side(agenda, pace, until, told)
    return [study for _, study in plans]


def _side_by_side(agenda: Agenda, pace: ExperimentPace, until: float | None, told: Callable[[str], None]) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TQDM_DISABLE", "1")  # else each process draws bars for loaded and saved weights
    running: set[Future[str]] = set()
    context = get_context("spawn")
    ending = context.Event()
    with ProcessPoolExecutor(pace.jobs, context, _hear, (ending,)) as pool:
        while True:
            while len(running) < pace.jobs and not late(until) and (work := agenda.following()) is not None:
                running.add(pool.submit(_done, work, until, pace.go_on, pace.jobs))
            if not running:
                return
            finished, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for one in finished:
                try:
                    told(one.result())
                except Interrupted as signalled:
                    told(str(signalled))
                    pace.interrupt.ask()
            if pace.interrupt.asked:
                ending.set()


def _hear(ending: Event) -> None:
    """In a process of the pool: its runs end when `ending` is set."""
    end_when(ending.is_set)
    load_libraries()


def _done(work: Work, until: float | None, go_on: bool, jobs: int = 1) -> str:
    import torch

    torch.set_num_threads(1)
    given, name, seed = work
    study = given.study()
    if jobs > 1 and torch.cuda.is_available():
        study = _sharing(given, study, jobs)
    try:
        if seed is None:
            return play_arena(study, given.folder, name, until)
        return one_run(study, given.folder, name, seed, until)
    except Interrupted:
        raise
    except Exception as error:  # a bug, or an error of CUDA: it is reported, and must not end the runs beside this one
        if not go_on:
            raise
        what = str(error) if isinstance(error, InterplayError) else f"{type(error).__name__}: {error}"
        return f"{study.section.name} {name} seed {seed}: failed: {what}"
    finally:
        if torch.cuda.is_available():  # the next run of this process sizes its cache by the memory that is free
            gc.collect()
            torch.cuda.empty_cache()


def _sharing(given: StudyCall, study: Study, jobs: int) -> Study:
    """The study, changed so that each of `jobs` runs may take an equal part of the GPU's memory. A study whose recipe
    already has `memory.share` is not changed."""
    arm, seed = study.runs[0]
    if study.recipe(arm, seed).memory.share < 1:
        return study
    share = f"memory.share={(1 - CONTEXTS * jobs) / jobs:.3f}"
    return replace(given, changes=(share, *given.changes)).study()

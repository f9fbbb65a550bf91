"""Runs programs nobody trusts: a pool of warm interpreters, each program in a jail of its own.

No network, no files but its own folder (and, read-only, the system's binaries and libraries and Python's standard
library), no inherited environment; limits on time, memory, disk, processes and output; ended with all its children.
What the program did is a `RunResult`; that the machinery failed is a `SandboxError`. How strong the walls are:

    namespaces   process and mount namespaces and a folder in memory made afresh for each program, an empty network, a
                 private root, a system-call filter, resource limits. Needs user namespaces; no privileges, no packages.
    landlock     Landlock, a system-call filter and resource limits in a temporary folder. Linux 5.13 or later.
    rlimits      resource limits and a clean environment only: the program can read what this user can. By name only.

`strongest` takes the first of the first two that this machine offers, and refuses a machine that offers neither. A
level is offered if a program that tries to get out, run at start, does not (`offered`). What runs: `jail/`.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from interplay.errors import SandboxError
from interplay.execution.isolation import LEVELS, Isolation, choose, offered
from interplay.execution.job import Job, Limits, RunResult
from interplay.execution.worker import IsolationLevel, SandboxWorker

__all__ = [
    "LEVELS",
    "Isolation",
    "IsolationLevel",
    "Job",
    "Limits",
    "RunResult",
    "Sandbox",
    "choose",
    "offered",
    "shared",
]


class Sandbox:
    """A pool of `workers` (default: one for each core). Safe to use from many threads; close it, or use `with`."""

    def __init__(self, workers: int | None = None, isolation: Isolation = "strongest") -> None:
        self.level = choose(isolation)
        self.workers = workers or len(os.sched_getaffinity(0))
        self._idle: queue.LifoQueue[SandboxWorker | None] = queue.LifoQueue()
        for _ in range(self.workers):
            self._idle.put(None)  # started when first needed
        self._threads = ThreadPoolExecutor(self.workers, "sandbox")
        self._closed = False

    def warm(self) -> Sandbox:
        """Start every worker now, not when it is first needed."""
        held = [self._idle.get() for _ in range(self.workers)]
        try:
            held = [SandboxWorker(self.level) if worker is None else worker for worker in held]
        finally:
            for worker in held:
                self._idle.put(worker)
        return self

    def run(self, job: Job) -> RunResult:
        worker, well = self._idle.get(), False
        try:
            if self._closed:
                raise SandboxError("the sandbox is closed.")
            if worker is None:
                worker = SandboxWorker(self.level)
            result = worker.run(job)
            well = True
            return result
        finally:  # a worker that was interrupted may be in the middle of a job
            if worker is not None and not well:
                worker.close()
                worker = None
            self._idle.put(worker)

    def map(self, jobs: Iterable[Job]) -> list[RunResult]:
        """All results, in the order of the jobs; as many at once as there are workers."""
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown()
        for _ in range(self.workers):
            if (worker := self._idle.get()) is not None:
                worker.close()
        for _ in range(self.workers):
            self._idle.put(None)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[Isolation, Sandbox] = {}
_lock = threading.Lock()


def shared(isolation: Isolation = "strongest") -> Sandbox:
    """The one pool of this process at that level: environments come and go, its workers stay warm."""
    with _lock:
        if isolation not in _shared:
            _shared[isolation] = Sandbox(isolation=isolation)
            atexit.register(_shared[isolation].close)
        return _shared[isolation]

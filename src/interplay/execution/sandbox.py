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
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from interplay.execution.isolation import LEVELS, Isolation, choose, offered
from interplay.execution.job import Job, Limits, RunResult
from interplay.execution.pool import WorkerPool
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


PROBE = Job("print('alive')"), b"alive\n"


class Sandbox:
    """A pool of `workers` (default: one for each core). Safe to use from many threads; close it, or use `with`."""

    def __init__(self, workers: int | None = None, isolation: Isolation = "strongest") -> None:
        self.level = choose(isolation)
        self.workers = workers or len(os.sched_getaffinity(0))
        self.pool = WorkerPool(self.workers, lambda: SandboxWorker(self.level), PROBE)
        self._threads = ThreadPoolExecutor(self.workers, "sandbox")

    def warm(self) -> Sandbox:
        """Start every worker now, not when it is first needed."""
        self.pool.warm()
        return self

    def run(self, job: Job) -> RunResult:
        return self.pool.run(job)

    def map(self, jobs: Iterable[Job]) -> list[RunResult]:
        """All results, in the order of the jobs; as many at once as there are workers."""
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._threads.shutdown()
        self.pool.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[tuple[int, Isolation], Sandbox] = {}  # by process: a child of fork must not use its parent's channels
_lock = threading.Lock()


def shared(isolation: Isolation = "strongest") -> Sandbox:
    """The one pool of this process at that level: environments come and go, its workers stay warm."""
    with _lock:
        key = os.getpid(), isolation
        if key not in _shared:
            _shared[key] = Sandbox(isolation=isolation)
            atexit.register(_shared[key].close)
        return _shared[key]

"""Runs untrusted programs: a pool of warm interpreters, in which each program has its own jail.

A program has no network, no inherited environment, and no files except its own folder and (read-only) the system's
binaries and libraries and Python's standard library. Its time, memory, disk, processes and output are limited, and it
is ended with all its children. What the program did is a `RunResult`. A failure of the sandbox itself is a
`SandboxError`. The isolation levels are:

    namespaces   process and mount namespaces and a folder in memory made afresh for each program, an empty network, a
                 private root, a system-call filter, resource limits. Needs user namespaces; no privileges, no packages.
    landlock     Landlock, a system-call filter and resource limits in a temporary folder. Linux 5.13 or later.
    rlimits      resource limits and a clean environment only: the program can read what this user can. Never automatic.

`strongest` takes the first of the first two that this machine offers, and refuses a machine that offers neither. A
level is offered if a test program that tries to break out at the start does not succeed (`offered`). The isolated part
is in `jail/`.
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
    """A pool of `workers` (default: one per core). Can be used from many threads. Close it, or use `with`."""

    def __init__(self, workers: int | None = None, isolation: Isolation = "strongest") -> None:
        self.level = choose(isolation)
        self.workers = workers or len(os.sched_getaffinity(0))
        self.pool = WorkerPool(self.workers, lambda: SandboxWorker(self.level), PROBE)
        self._threads = ThreadPoolExecutor(self.workers, "sandbox")

    def warm(self) -> Sandbox:
        """Start every worker now instead of when it is first needed."""
        self.pool.warm()
        return self

    def run(self, job: Job) -> RunResult:
        return self.pool.run(job)

    def map(self, jobs: Iterable[Job]) -> list[RunResult]:
        """Run all jobs, as many at once as there are workers. The results are in the order of the jobs."""
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._threads.shutdown()
        self.pool.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_shared: dict[tuple[int, Isolation], Sandbox] = {}  # by process id: a forked child must not use its parent's channels
_lock = threading.Lock()


def shared(isolation: Isolation = "strongest") -> Sandbox:
    """The pool of this process at that level. It stays warm while environments are made and closed."""
    with _lock:
        key = os.getpid(), isolation
        if key not in _shared:
            _shared[key] = Sandbox(isolation=isolation)
            atexit.register(_shared[key].close)
        return _shared[key]

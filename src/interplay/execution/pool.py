"""A fixed number of workers, which are started when they are first needed and replaced when they die.

Every program gets a result. If a program vanished for an unknown reason, or if its worker died, a new worker runs it
once more, because another program may have been the cause. If that happens again, a harmless message is sent. If it is
answered, the sandbox works, and the program ended itself. If it is not answered, the sandbox has failed.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

from interplay.errors import SandboxError
from interplay.execution.job import RunResult
from interplay.execution.worker import SandboxWorker, Sendable


class WorkerPool:
    """Can be used from many threads. `probe` is a harmless message and its expected answer."""

    def __init__(self, workers: int, make: Callable[[], SandboxWorker], probe: tuple[Sendable, bytes]) -> None:
        self.workers, self.make, self.probe = workers, make, probe
        self.idle: queue.LifoQueue[SandboxWorker | None] = queue.LifoQueue()
        for _ in range(workers):
            self.idle.put(None)
        self.closed = False

    def warm(self) -> None:
        """Start every worker now instead of when it is first needed."""
        held = [self.idle.get() for _ in range(self.workers)]
        try:
            held = [self.make() if worker is None else worker for worker in held]
        finally:
            for worker in held:
                self.idle.put(worker)

    def run(self, message: Sendable) -> RunResult:
        died = ""
        for _ in range(2):
            try:
                result = self._try(message)
            except OSError as error:
                died = str(error)
            else:
                if not result.lost:
                    return result
        try:
            alive = self._try(self.probe[0]).output == self.probe[1]
        except OSError as error:
            died, alive = str(error), False
        if not alive:
            raise SandboxError(f"a sandbox worker died ({died}); the machine may be out of memory.")
        return RunResult("killed", None, 0.0, lost=True)

    def _try(self, message: Sendable) -> RunResult:
        """Raises OSError if the worker died."""
        worker, well = self.idle.get(), False
        try:
            if self.closed:
                raise SandboxError("the sandbox is closed; make a new one.")
            if worker is None:
                worker = self.make()
            result = worker.run(message)
            well = True
            return result
        finally:  # a worker that was interrupted may be in the middle of a job
            try:
                if worker is not None and not well:
                    worker.close()
            finally:
                self.idle.put(worker if well else None)

    def close(self) -> None:
        self.closed = True
        held = [worker for worker in [self.idle.get() for _ in range(self.workers)] if worker is not None]
        for worker in held:
            worker.leave()
        for worker in held:
            worker.close()
        for _ in range(self.workers):
            self.idle.put(None)

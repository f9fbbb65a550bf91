"""Processes that answer questions and can be ended: each takes a line of JSON and gives one back.

Some libraries cannot be interrupted from a thread, or take memory that nobody counts: `9**9**9` does not return, and a
short query can ask for fourteen gigabytes. They run in workers, `python -m MODULE`, which limit their own memory. One
that works on a question for too long is killed and replaced; what is measured is its processor time, so that a busy
machine does not change an answer.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError

GRACE = 2.0  # seconds more than a worker's own alarm, before it is killed
PATIENCE = 120.0  # on the wall, for a start or an answer: past it the machine is at fault
WORKERS = 2
READY = b"ready\n"


class Fate(Enum):
    LATE = "late"
    DEAD = "dead"


class Worker:
    def __init__(self, module: str) -> None:
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
        self.module, self.rest = module, b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
        )  # fmt: skip
        with contextlib.ExitStack() as undo:
            undo.callback(self.end)
            if self._line(PATIENCE) != READY:
                raise InterplayError(f"a process of {module} does not start; try: {sys.executable} -m {module}")
            undo.pop_all()

    def ask(self, question: Any, seconds: float) -> Any:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            line = self._line(seconds + GRACE)
        except OSError:
            return Fate.DEAD
        return line if isinstance(line, Fate) else json.loads(line)

    def _line(self, seconds: float) -> bytes | Fate:
        """What it says next."""
        assert self.process.stdout is not None
        began, used = time.monotonic(), self._used()
        while b"\n" not in self.rest:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                more = os.read(self.process.stdout.fileno(), 1 << 20)
                if not more:
                    return Fate.DEAD
                self.rest += more
            elif self._used() - used > seconds:
                return Fate.LATE
            elif time.monotonic() - began > PATIENCE:
                raise InterplayError(f"a process of {self.module} got no processor time for {PATIENCE:g} seconds.")
        line, _, self.rest = self.rest.partition(b"\n")
        return line + b"\n"

    def _used(self) -> float:
        """Seconds of processor time; where the system does not tell, seconds on the wall."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return time.monotonic()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()


class Pool:
    """A few workers, started when needed; safe to ask from any thread."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(WORKERS):
            self.idle.put(None)
        self.live: set[Worker] = set()

    def ask(self, question: Any, seconds: float) -> Any:
        """The answer, or what became of who was asked. A worker that dies may have been somebody else's victim: a
        second one decides."""
        said = self._ask(question, seconds)
        return self._ask(question, seconds) if said is Fate.DEAD else said

    def _ask(self, question: Any, seconds: float) -> Any:
        worker, said = self.idle.get(), Fate.DEAD
        try:
            if worker is None:
                worker = Worker(self.module)
                self.live.add(worker)
            said = worker.ask(question, seconds)
            return said
        finally:
            if worker is not None and isinstance(said, Fate):
                self.live.discard(worker)
                worker.end()
                worker = None
            self.idle.put(worker)

    def close(self) -> None:
        for worker in [*self.live]:
            worker.end()
        self.live.clear()


_POOLS: dict[tuple[int, str], Pool] = {}  # by process: a child of fork must not share its parent's pipes
_LOCK = threading.Lock()


def pool(module: str) -> Pool:
    """The workers that run this module's `main`."""
    with _LOCK:
        key = os.getpid(), module
        if key not in _POOLS:
            for other in [k for k in _POOLS if k[0] != key[0]]:
                del _POOLS[other]
            _POOLS[key] = made = Pool(module)
            atexit.register(made.close)
        return _POOLS[key]


def serve(answer: Callable[[Any], Any], memory: int) -> None:
    """What a worker does: answers lines until the input ends, within `memory` bytes."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()

"""Questions to libraries that read what models wrote: SQLite, DuckDB, sympy. They run behind the sandbox's walls.

Such a library cannot be interrupted from a thread, takes memory that nobody counts, and may have a hole: `9**9**9` does
not return, and a short query can ask for fourteen gigabytes. A service is a module with three functions:
`prepare()`, called once before the walls go up; `answer(text: bytes) -> bytes`, called behind them, in a process that
ends with the answer (`jail/service.py`); and `probe()`, a question that is always answered the same, with its answer.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from interplay.execution.isolation import choose
from interplay.execution.jail.service import MISSING
from interplay.execution.job import Limits, RunResult, framed
from interplay.execution.pool import WorkerPool
from interplay.execution.worker import SOURCE, SandboxWorker

WORKERS = max(2, min(8, len(os.sched_getaffinity(0)) // 2))
PROBING = Limits(seconds=60.0)  # of the question that shows whether a service works
PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class LibraryQuestion:
    """`content` is sent as JSON; `files` are what it is about, by names that say what is in them. `ours`: nothing in it
    was written by a model, and it may write."""

    content: Any
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = PROBING
    ours: bool = False
    sending: bool = False  # the files themselves: a service keeps those it was sent

    def encoded(self) -> bytes:
        text = json.dumps(self.content).encode()
        sent = self.files if self.sending else {}
        head = {"limits": asdict(self.limits), "ours": self.ours, "needs": [*self.files], "text": len(text)}
        return framed({**head, "files": [(n, len(c)) for n, c in sent.items()]}, text, *sent.values())


class LibraryService:
    """The workers that run one module."""

    def __init__(self, module: str) -> None:
        level = choose("strongest")
        packages = [SOURCE, *(p for p in sys.path if os.path.basename(p) in PACKAGES and os.path.isdir(p))]
        content, answer = importlib.import_module(module).probe()
        probe = LibraryQuestion(content), json.dumps(answer).encode()
        self.pool = WorkerPool(WORKERS, lambda: SandboxWorker(level, module, packages), probe)

    def ask(self, question: LibraryQuestion) -> RunResult:
        """`output` is the answer, where the result is ok."""
        result = self.pool.run(question)
        return self.pool.run(replace(question, sending=True)) if result.code == MISSING else result


_services: dict[tuple[int, str], LibraryService] = {}  # by process: a child of fork must not use its parent's channels
_lock = threading.Lock()


def service(module: str) -> LibraryService:
    """The one of this process for that module; its workers stay warm."""
    with _lock:
        key = os.getpid(), module
        if key not in _services:
            _services[key] = LibraryService(module)
            atexit.register(_services[key].pool.close)
        return _services[key]

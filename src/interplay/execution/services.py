"""Asks questions to libraries that parse what models wrote (SQLite, DuckDB, sympy). They run inside the sandbox.

Such a library cannot be interrupted from a thread, uses memory without a limit, and may have a security hole: `9**9**9`
does not return, and a short query can ask for fourteen gigabytes. A service is a module with three functions.
`prepare()` is called once before the process is isolated. `answer(text: bytes) -> bytes` is called isolated, in a
process that ends with the answer (`jail/service.py`). `probe()` returns a question with its known answer.
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
PROBING = Limits(seconds=60.0)  # limits of the question that tests whether a service works
PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class LibraryQuestion:
    """`content` is sent as JSON. `files` are the files that it is about; their names identify their contents. `ours`
    means that no part of it was written by a model; such a question may write."""

    content: Any
    files: Mapping[str, bytes] = field(default_factory=dict)
    limits: Limits = PROBING
    ours: bool = False
    sending: bool = False  # whether to send the files themselves; a service keeps files that it was sent

    def encoded(self) -> bytes:
        text = json.dumps(self.content).encode()
        sent = self.files if self.sending else {}
        head = {"limits": asdict(self.limits), "ours": self.ours, "needs": [*self.files], "text": len(text)}
        return framed({**head, "files": [(n, len(c)) for n, c in sent.items()]}, text, *sent.values())


def packages() -> list[str]:
    """The folders with installed packages that a service may read: those of this Python, and those in PYTHONPATH."""
    named = {os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p}
    found = (p for p in sys.path if os.path.basename(p) in PACKAGES or os.path.abspath(p) in named)
    return [SOURCE, *(p for p in found if os.path.isdir(p))]


class LibraryService:
    """The workers that run one module."""

    def __init__(self, module: str) -> None:
        level = choose("strongest")
        content, answer = importlib.import_module(module).probe()
        probe = LibraryQuestion(content), json.dumps(answer).encode()
        self.pool = WorkerPool(WORKERS, lambda: SandboxWorker(level, module, packages()), probe)

    def ask(self, question: LibraryQuestion) -> RunResult:
        """Ask a question. If the result is ok, `output` is the answer."""
        result = self.pool.run(question)
        return self.pool.run(replace(question, sending=True)) if result.code == MISSING else result


_services: dict[tuple[int, str], LibraryService] = {}  # by process: a forked child must not use its parent's channels
_lock = threading.Lock()


def service(module: str) -> LibraryService:
    """The service of this process for that module. Its workers stay warm."""
    with _lock:
        key = os.getpid(), module
        if key not in _services:
            _services[key] = LibraryService(module)
            atexit.register(_services[key].pool.close)
        return _services[key]

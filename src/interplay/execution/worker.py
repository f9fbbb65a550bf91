"""One worker of the sandbox: a process of the jail, and the channel to it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Protocol

from interplay.errors import SandboxError
from interplay.execution.jail.folder import remove
from interplay.execution.job import Limits, RunResult

IsolationLevel = Literal["namespaces", "landlock", "rlimits"]
# The package is on the path only until the part that runs there is imported.
START = """
import sys
sys.path.insert(0, sys.argv[2])
from interplay.execution.jail.keeper import main
del sys.path[0]
main(sys.argv[1])
"""
SOURCE = str(Path(__file__).parents[2])
# Nothing is inherited. Each library uses one thread, because a process with threads cannot be forked safely.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
STARTING = 120.0  # seconds that a worker may take to start, because some libraries import slowly
GRACE = 30.0  # seconds beyond its limit after which a worker that has not answered counts as dead
LEAVING = 15.0  # seconds that a worker may take to end its job and clean up
PREFIX = "interplay-jail-"  # only folders with this prefix are swept; other parts of Interplay have folders too
OLD = 60.0  # seconds after which an unlocked folder counts as left behind


class Sendable(Protocol):
    """A job or a question."""

    @property
    def limits(self) -> Limits: ...

    def encoded(self) -> bytes: ...


class SandboxWorker:
    """A process of the jail and the channel to it. `service` is a module that answers questions there (`services.py`),
    with the `packages` that it needs."""

    def __init__(self, level: IsolationLevel, service: str = "", packages: Sequence[str] = ()) -> None:
        self.level = level
        self.folder, held = _folder()
        self.channel, theirs = socket.socketpair()
        options = {"level": level, "folder": self.folder, "service": service, "packages": [*packages]}
        with theirs:
            python: str = getattr(sys, "_base_executable", None) or sys.executable
            text = json.dumps({**options, "channel": theirs.fileno(), "lock": held})
            self.process = subprocess.Popen(
                [python, "-s", "-S", "-P", "-c", START, text, SOURCE],
                env=ENVIRONMENT,
                pass_fds=[theirs.fileno(), held],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            os.close(held)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.channel.settimeout(STARTING)
            self.accounting: str = self._answer()["accounting"]
            undo.pop_all()

    def run(self, message: Sendable) -> RunResult:
        """Raises OSError if the worker died."""
        self.channel.settimeout(message.limits.seconds + GRACE)
        self.channel.sendall(message.encoded())
        return RunResult(**self._answer())

    def _answer(self) -> dict[str, Any]:
        head: dict[str, Any] = json.loads(self._read(struct.unpack("I", self._read(4))[0]))
        stdout, stderr = (self._read(size) for size in head.pop("sizes"))
        if "trouble" in head:
            raise SandboxError(f"{head['trouble']} (sandbox level '{self.level}').")
        return {**head, "output": stdout, "errors": stderr} if "status" in head else head

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.channel.recv(min(1 << 20, size - len(parts)))
            if not part:
                raise ConnectionError("it closed its channel")
            parts += part
        return bytes(parts)

    def leave(self) -> None:
        """Close the channel. The worker then ends and removes its folder; `close` waits for that."""
        self.channel.close()

    def close(self) -> None:
        self.leave()
        try:
            self.process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            remove(self.folder)


def _folder() -> tuple[str, int]:
    """Make a folder, and a descriptor whose lock marks it as used."""
    sweep(tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix=PREFIX)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_SH)
    return folder, held


@cache
def sweep(parent: str) -> None:
    """Remove folders of workers that were killed together with their keepers. Done once per process."""
    for entry in os.scandir(parent):
        if not entry.name.startswith(PREFIX):
            continue
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            found = entry.stat(follow_symlinks=False)
            if not entry.is_dir(follow_symlinks=False) or time.time() - found.st_mtime < OLD:
                continue
            fd = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            undo.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(entry.path)

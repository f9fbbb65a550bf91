"""A forked run of a program, its limits and its open files.

It uses the standard library only, because `worker.py` imports it under the program's own Python.
"""

from __future__ import annotations

import json
import os
import resource
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interplay.execution.jail import cgroup


def limit(kind: int, most: int) -> tuple[int, tuple[int, int]]:
    """A limit of a run, as `setrlimit` takes it. A lower limit that this process has already stays."""
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    return kind, (most, most)


def more_files(now: tuple[int, int]) -> None:
    """Raise the limit of open files: many runs at once need more than the usual 1,024."""
    wanted = 65536 if now[1] == resource.RLIM_INFINITY else min(65536, now[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now[0], wanted), now[1]))


def ranges_of(files: list[int]) -> list[tuple[int, int]]:
    """Numbers of open files, as ranges that `os.closerange` takes. One call closes a whole range."""
    out: list[tuple[int, int]] = []
    for fd in sorted(files):
        if out and out[-1][1] == fd:
            out[-1] = (out[-1][0], fd + 1)
        else:
            out.append((fd, fd + 1))
    return out


def open_standard_streams() -> None:
    """Open the standard streams that the program has closed when it was imported. Otherwise the next file that is
    opened would take their place."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)


class ForkedRun:
    """A process that runs a program, or waits for a run: its folder, and what it has written in this run."""

    def __init__(self, pid: int, folder: str, reads: dict[int, str], order: int, group: cgroup.Cgroup | None) -> None:
        self.pid, self.folder, self.reads, self.group = pid, folder, reads, group
        self.order: int | None = order  # the pipe for its orders, which does not block; None after the last order
        self.shown = 0  # the number that /proc shows for its first process; 0 while it is not known
        self.number: int | None = None  # of the run; None while it waits
        self.place = -1  # the number by which the trainer knows this process, after its first run has begun
        self.unsent = b""  # the part of its order that the pipe has not taken yet
        self.last = True  # no run follows after this one
        self.spent = 0.0  # CPU seconds of its first process before this run
        self.written = {name: bytearray() for name in ("out", "err", "result")}
        self.excess = ""  # what it did more than it may

    def files(self) -> list[int]:
        """The descriptors that the worker has open for it."""
        return [*self.reads, *([] if self.order is None else [self.order])]

    def tell(self, order: dict) -> bool:
        """Send an order to the process, and return False if the process has ended."""
        if self.place >= 0:
            self.forget()
        self.unsent, self.last = json.dumps(order).encode() + b"\n", order["last"]
        if not self.send():
            return False
        self.number, self.place = order["id"], order["place"]
        return True

    def send(self) -> bool:
        """Send as much of the order as the pipe takes, and return False if the process has ended. Nothing waits for the
        process: after its first run it may do what a model wrote, and it may not read."""
        try:
            if self.order is not None:
                self.unsent = self.unsent[os.write(self.order, self.unsent) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def forget(self) -> None:
        """Throw away what the last run has printed. All of it is in the pipes, and one call reads what a pipe holds."""
        for fd, name in self.reads.items():
            if name != "result":
                with suppress(BlockingIOError):
                    os.read(fd, 1 << 20)
        for written in self.written.values():
            written.clear()

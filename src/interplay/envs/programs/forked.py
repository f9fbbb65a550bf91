"""A forked run of a program, its limits and its open files.

It uses the standard library only, because `worker.py` imports it under the program's own Python.
"""

from __future__ import annotations

import resource
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


class ForkedRun:
    """A run that goes on, or a process that waits for one: its processes, its folder and what it has written."""

    def __init__(self, pid: int, folder: str, reads: dict[int, str], order: int, group: cgroup.Cgroup | None) -> None:
        self.pid, self.folder, self.reads, self.order, self.group = pid, folder, reads, order, group
        self.shown = 0  # the number that /proc shows for its first process; 0 while it is not known
        self.number: int | None = None  # of the run; None while it waits
        self.reported = False
        self.written = {name: bytearray() for name in ("out", "err", "result")}
        self.excess = ""  # what it did more than it may

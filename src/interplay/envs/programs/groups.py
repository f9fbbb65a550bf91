"""The control groups of runs: one for each, with its limits, if this machine lets a worker make them.

It uses the standard library only, and no other file of the package, because `worker.py` imports it under the program's
own Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interplay.execution.jail.cgroup import Cgroup

# The most threads of all processes of a run together. Libraries start one for each core.
THREADS = max(1024, 16 * (os.cpu_count() or 1))


class RunGroups:
    """`cgroup` is the module that makes control groups."""

    def __init__(self, made: dict, cgroup: Any) -> None:
        self.made, self.cgroup = made, cgroup
        self.place = ""  # the control group in which each run gets its own; empty if there is none
        self._all: set[Cgroup] = set()

    def find_place(self) -> None:
        self.place = self.cgroup.find_place()[0]

    def __iter__(self) -> Iterator[Cgroup]:
        return iter(self._all)

    def new(self) -> Cgroup | None:
        """A control group for one run, with its limits. The folder of an isolated run is in memory too. If no group can
        be made, runs continue without one, and only the worker's own checks limit them."""
        if not self.place:
            return None
        in_memory = self.made["disk_mb"] if self.made["walls"] else 0
        try:
            group: Cgroup = self.cgroup.make_cgroup(self.place)
            self._all.add(group)
            group.limit(self.made["memory_mb"] + in_memory, self.made["processes"] + THREADS)
        except OSError as error:
            sys.stderr.write(f"env.program: no control group could be made ({error}); limits are less exact.\n")
            self.place = ""
            return None
        return group

    def remove(self, group: Cgroup) -> None:
        group.remove()
        self._all.remove(group)

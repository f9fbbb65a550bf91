"""Where the jobs of a worker run: what its zygote made once, and every job uses."""

from __future__ import annotations

from dataclasses import dataclass

from interplay.execution.jail.cgroup import Cgroup


@dataclass(frozen=True)
class Site:
    level: str  # namespaces, landlock or rlimits
    folder: str  # of this worker, on disk
    readable: tuple[str, ...]  # what programs may read
    proc: int  # a descriptor of /proc, opened before there were walls
    cgroup: Cgroup | None
    service: str  # the module that answers questions here; empty where programs are run

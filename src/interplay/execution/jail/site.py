"""The place where the jobs of a worker run: what its zygote made once and every job uses."""

from __future__ import annotations

from dataclasses import dataclass

from interplay.execution.jail.cgroup import Cgroup


@dataclass(frozen=True)
class Site:
    level: str  # namespaces, landlock or rlimits
    folder: str  # the folder of this worker, on disk
    readable: tuple[str, ...]  # the paths that programs may read
    proc: int  # a descriptor of /proc, opened before the process was isolated
    cgroup: Cgroup | None
    service: str  # the module that answers questions here; empty if the worker runs programs

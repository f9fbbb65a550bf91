"""The walls around a program: resource limits, Landlock, no capabilities, a system-call filter.

Standard library only: this runs where nothing is installed. Whatever cannot be put up raises `JailError`; there is no
weaker second choice here.
"""

from __future__ import annotations

import resource

from interplay.execution.jail.landlock import landlock, landlock_version
from interplay.execution.jail.privileges import capabilities, reading
from interplay.execution.jail.seccomp import apply_filter, seccomp
from interplay.execution.jail.syscall import LIBC, SET_NO_NEW_PRIVS, call


def restrict(level: str, limits: dict[str, float], folder: str, readable: list[str], running: int) -> None:
    megabyte, count = 1 << 20, int(limits["processes"]) + running
    seconds = max(1, int(-(-limits["cpu_seconds"] // 1)))
    for kind, soft, hard in (
        (resource.RLIMIT_AS, int(limits["memory_mb"] * megabyte), None),
        (resource.RLIMIT_CPU, seconds, seconds + 1),
        (resource.RLIMIT_FSIZE, int(limits["files_mb"] * megabyte), None),
        (resource.RLIMIT_NPROC, count, None),
        (resource.RLIMIT_NOFILE, 256, None),
        (resource.RLIMIT_CORE, 0, None),
        (resource.RLIMIT_STACK, 64 * megabyte, None),
        (resource.RLIMIT_MEMLOCK, 0, None),
        (resource.RLIMIT_MSGQUEUE, 0, None),
    ):
        most = resource.getrlimit(kind)[1]
        bounded = [
            v if most == resource.RLIM_INFINITY else min(v, most) for v in (soft, soft if hard is None else hard)
        ]
        resource.setrlimit(kind, (bounded[0], bounded[1]))
    call("no_new_privs", LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if level == "rlimits":
        return
    keep = 0
    if level == "landlock":
        landlock(landlock_version(), readable, folder)
        keep = reading()
    capabilities(keep)
    apply_filter(seccomp(private=level == "namespaces", signals=level == "namespaces" or landlock_version() >= 6))

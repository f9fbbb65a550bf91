"""Isolates a program: resource limits, Landlock, no capabilities, a system-call filter.

It uses the standard library only, because no packages are installed where it runs. If a part of the isolation cannot be
set up, it raises `JailError`; there is no weaker fallback.
"""

from __future__ import annotations

import resource

from interplay.execution.jail.job import ReceivedJob
from interplay.execution.jail.landlock import landlock, landlock_version
from interplay.execution.jail.privileges import capabilities, reading
from interplay.execution.jail.seccomp import apply_filter, base_filter, only_itself
from interplay.execution.jail.site import Site
from interplay.execution.jail.syscall import LIBC, SET_NO_NEW_PRIVS, call

MEGABYTE = 1 << 20
FOREVER = 1e9  # from this many seconds on, there is no limit


def restrict(job: ReceivedJob, site: Site, folder: str) -> None:
    limits = job.limits
    seconds = max(1, int(-(-limits["cpu_seconds"] // 1)))
    if seconds < FOREVER:
        set_limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    set_limit(resource.RLIMIT_AS, int(limits["memory_mb"] * MEGABYTE))
    set_limit(resource.RLIMIT_FSIZE, int(limits["files_mb"] * MEGABYTE))
    set_limit(resource.RLIMIT_NPROC, int(limits["processes"]) + job.running)
    set_limit(resource.RLIMIT_NOFILE, 256)
    set_limit(resource.RLIMIT_CORE, 0)
    set_limit(resource.RLIMIT_STACK, 64 * MEGABYTE)
    set_limit(resource.RLIMIT_MEMLOCK, 0)
    set_limit(resource.RLIMIT_MSGQUEUE, 0)
    set_limit(resource.RLIMIT_SIGPENDING, 1024)
    call("no_new_privs", LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if site.level == "rlimits":
        return
    keep, version = 0, landlock_version()
    if site.level == "landlock":
        landlock(version, site.readable, folder)
        keep = reading()
    capabilities(keep)
    apply_filter(base_filter(site.level == "namespaces", version))
    if site.level == "landlock" and version < 6:
        apply_filter(only_itself())


def set_limit(kind: int, soft: int, hard: int | None = None) -> None:
    """Set the limit as asked, or keep the present one if it is lower."""
    most = resource.getrlimit(kind)[1]
    wanted = soft, soft if hard is None else hard
    bounded = [value if most == resource.RLIM_INFINITY else min(value, most) for value in wanted]
    resource.setrlimit(kind, (bounded[0], bounded[1]))

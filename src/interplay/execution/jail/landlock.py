"""Landlock limits which files a process and its children can read and change. It needs Linux 5.13 or later."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence

from interplay.execution.jail.paths import DEVICES, LIBRARY, PACKAGES
from interplay.execution.jail.syscall import LIBC, SET_NO_NEW_PRIVS, call

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read directory
FILE_ONLY = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15


def landlock_version() -> int:
    return max(0, LIBC.syscall(CREATE_RULESET, None, 0, 1))


def landlock(version: int, readable: Sequence[str], folder: str) -> None:
    """Allow reading only `readable` and changing only `folder`; no TCP; no signals or abstract sockets to others."""
    handled = (1 << 13) - 1 | (version >= 2) << 13 | (version >= 3) << 14 | (version >= 5) << 15
    ruleset = struct.pack("QQQ", handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    fd = call("Landlock", LIBC.syscall(CREATE_RULESET, ruleset, size, 0))
    for path, rights in [*((p, READ) for p in readable), *((d, READ | 1 << 1) for d in DEVICES), (folder, handled)]:
        try:
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = rights & handled
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            allowed &= FILE_ONLY
        call(f"Landlock, {path}", LIBC.syscall(ADD_RULE, fd, 1, struct.pack("=Qi", allowed, target), 0))
        os.close(target)
    call("Landlock", LIBC.syscall(RESTRICT_SELF, fd, 0))
    os.close(fd)


def fence(version: int, readable: Sequence[str], folder: str) -> None:
    """Apply Landlock to a worker once, so that its programs cannot read the installed Python packages. The long list of
    rules is then not needed for each program: each program only adds a layer of its own, without /proc."""
    inside = [e.path for e in os.scandir(LIBRARY) if e.name not in PACKAGES]
    call("no_new_privs", LIBC.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    landlock(version, [*(p for p in readable if p != LIBRARY), *inside, "/proc"], folder)

"""Gives up the privileges of root: users, groups, capabilities."""

from __future__ import annotations

import ctypes
import os
import struct

from interplay.execution.jail.syscall import LIBC, SET_DUMPABLE, SET_KEEPCAPS, call

NOBODY = 65534
DAC_READ_SEARCH = 1 << 2


def become_nobody(uid: int = NOBODY, keep: int = 0) -> None:
    """Stop being root. Limits do not apply to root, and root owns every file, so a program never runs as root, not even
    as the root of a user namespace."""
    LIBC.prctl(SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(uid, uid, uid)
    capabilities(keep)
    LIBC.prctl(SET_DUMPABLE, 1, 0, 0, 0)


def is_root(uid: int = NOBODY) -> bool:
    """Whether this is root and able to become `uid`. The root of a user namespace that maps only itself is not."""
    with open("/proc/self/uid_map") as table:
        ranges = [tuple(map(int, line.split())) for line in table]
    return os.geteuid() == 0 and any(first <= uid < first + count for first, _, count in ranges)


def reading() -> int:
    """The capabilities with which a program that root started can read an interpreter in root's own folder, if Landlock
    allows it."""
    held = ctypes.create_string_buffer(24)
    call("capget", LIBC.capget(struct.pack("Ii", 0x20080522, 0), held))
    return struct.unpack_from("I", held)[0] & DAC_READ_SEARCH


def capabilities(keep: int) -> None:
    done = LIBC.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("IIIIII", keep, keep, 0, 0, 0, 0))
    call("capabilities cannot be given up", done)

"""Namespaces: a process with its own root folder, made of read-only views of the system, and without a network."""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Sequence

from interplay.execution.jail.paths import DEVICES, LIBRARY, LINKS, PACKAGES
from interplay.execution.jail.privileges import NOBODY, become_nobody, is_root
from interplay.execution.jail.syscall import LIBC, NEWIPC, NEWNET, NEWNS, NEWUSER, NEWUTS, call

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PRIVATE = "/job"  # the folder of the private root at which a job's files are mounted


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    done = LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), flags, data and data.encode())
    call(f"mounting {target}", done)


def bind(path: str, root: str) -> None:
    """Make `path` visible at the same place under `root`, read-only."""
    target = root + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    device = path in DEVICES
    mount(path, target, None, MS_BIND | MS_REC)
    attributes = struct.pack("QQQQ", MS_RDONLY | MS_NOSUID | (0 if device else MS_NODEV), 0, 0, 0)
    if LIBC.syscall(442, -100, target.encode(), 0x8000, attributes, len(attributes)) < 0:  # recursive; Linux 5.12
        found = os.statvfs(target).f_flag
        keep = found & 0xE | found & 0xC00 | (1 << 21 if found & 4096 else 0)
        mount(path, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | keep)


def map_self(uid: int, gid: int, proc: int) -> None:
    for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
        fd = os.open(f"self/{name}", os.O_WRONLY, dir_fd=proc)
        os.write(fd, text.encode())
        os.close(fd)


def shut_in(folder: str, readable: Sequence[str], proc: int) -> None:
    """Move this process into a user namespace and a root of its own, made of read-only views of what is readable."""
    uid, gid, root = os.geteuid(), os.getegid(), is_root()
    call("user namespaces are not available", LIBC.unshare(NEWNS if root else NEWUSER | NEWNS))
    if not root:
        map_self(uid, gid, proc)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for path in (*readable, *DEVICES):
        bind(path, folder)
    for name in PACKAGES:
        if os.path.isdir(f"{folder}{LIBRARY}/{name}") and f"{LIBRARY}/{name}" not in readable:
            mount("tmpfs", f"{folder}{LIBRARY}/{name}", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=755")
    for link in LINKS:
        if os.path.islink(link):
            os.symlink(os.readlink(link), folder + link)
        elif os.path.isdir(link):
            bind(link, folder)
    os.makedirs(f"{folder}{PRIVATE}")
    for name in ("/tmp", "/dev/shm"):
        if not os.path.lexists(folder + name):  # otherwise a readable path is mounted there
            os.symlink(PRIVATE, folder + name)
    os.chdir(folder)
    call("pivot_root", LIBC.syscall({"x86_64": 155, "aarch64": 41}[platform.machine()], b".", b"."))
    call("umount", LIBC.umount2(b".", MNT_DETACH))
    os.chdir("/")
    mount("none", "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    if root:
        become_nobody()
        call("user namespaces are not available", LIBC.unshare(NEWUSER))
        map_self(NOBODY, NOBODY, proc)
    # An empty network. Nothing in it outlives a process, so all jobs of this worker, which run in turn, can share it.
    call("namespaces", LIBC.unshare(NEWNET | NEWIPC | NEWUTS))

"""What the kernel tells of the processes of a job, and of what they left on disk.

`proc` is a descriptor of /proc, opened before there were walls.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

SOCKET = 0.21  # megabytes that the kernel keeps for one, unless told otherwise: Linux's net.core.wmem_default


def kernel() -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2])


def processes_of(uid: int, proc: int) -> int:
    """Tasks that already count against this user's limit."""
    count = 0
    for name in os.listdir(proc):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=proc).st_uid == uid:
                    count += os.stat(f"{name}/task", dir_fd=proc).st_nlink - 2
    return count


def family(pid: int, proc: int) -> list[int]:
    """The descendants of a process, as far as they can be seen."""
    found, ahead = [], [pid]
    while ahead:
        one = ahead.pop()
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(fd := os.open(f"{one}/task", os.O_RDONLY, dir_fd=proc)):
                handle = os.open(f"{task}/children", os.O_RDONLY, dir_fd=fd)
                children = [int(n) for n in os.read(handle, 1 << 16).split()]
                os.close(handle)
                found += children
                ahead += children
            os.close(fd)
    return found


def memory_of(pid: int, proc: int) -> float:
    """Megabytes, shared pages divided among their owners where the kernel tells."""
    for name in ("smaps_rollup", "statm"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fd = os.open(f"{pid}/{name}", os.O_RDONLY, dir_fd=proc)
            text = os.read(fd, 4096).decode()
            os.close(fd)
            if name == "statm":
                return int(text.split()[1]) * 4 / 1024
            return int(text.split("Pss:")[1].split()[0]) / 1024
    return 0.0


def held_open(pids: list[int], proc: int) -> tuple[float, float]:
    """Megabytes in files that have no name any more, and those that the buffers of sockets may take: neither is part of
    a folder or of a process. A descriptor that several share counts once."""
    deleted: dict[tuple[int, int], int] = {}
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            fd = os.open(f"{pid}/fd", os.O_RDONLY, dir_fd=proc)
            undo.callback(os.close, fd)
            for name in os.listdir(fd):
                with contextlib.suppress(OSError):
                    found = os.stat(name, dir_fd=fd)
                    if stat.S_ISSOCK(found.st_mode):
                        sockets.add(found.st_ino)
                    elif stat.S_ISREG(found.st_mode) and not found.st_nlink:
                        deleted[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(deleted.values()) / (1 << 20), len(sockets) * SOCKET


def size_of(folder: str) -> float:
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_blocks * 512
    return total / (1 << 20)


def remove(folder: str) -> None:
    """Also what its owner made unreadable."""

    def again(function: object, path: str, error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)

    for _ in range(8):
        shutil.rmtree(folder, onerror=again)
        if not os.path.lexists(folder):
            return

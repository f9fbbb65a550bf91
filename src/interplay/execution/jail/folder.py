"""Measures and removes a folder that a program wrote into.

Paths in it may be longer than the kernel accepts, folders may be deeper than Python can recurse, and files may be
unreadable. So this code uses no paths: every step is relative to an open folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat

DEEPEST = 100  # levels that are measured while a program runs; each level needs an open descriptor
SMALLEST = 4096  # bytes that are counted at least for each name
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def size_of(folder: str, most: float) -> float:
    """The size in megabytes. It is infinite if a part cannot be read. (Changing the mode of that part by its name would
    follow a link that the program may have put there.) Counting stops when `most` is exceeded."""
    try:
        fd = os.open(folder, _FLAGS)
    except OSError:
        return math.inf
    return _size(fd, most * (1 << 20), DEEPEST) / (1 << 20)


def _size(fd: int, most: float, deeper: int) -> float:
    total = 0.0
    try:
        with os.scandir(fd) as found:
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # the program removed it in the meantime
                    known = entry.stat(follow_symlinks=False)
                    total += max(SMALLEST, known.st_blocks * 512)
                    if stat.S_ISDIR(known.st_mode):
                        if not deeper:
                            return math.inf
                        total += _size(os.open(entry.name, _FLAGS, dir_fd=fd), most - total, deeper - 1)
                if total > most:
                    break
    except FileNotFoundError:
        return total
    except OSError:
        return math.inf
    finally:
        os.close(fd)
    return total


def remove(folder: str) -> bool:
    """Remove the folder and return whether it is gone. No process may be running in it."""
    with contextlib.suppress(OSError):
        empty(folder)
        os.rmdir(folder)
    return not os.path.lexists(folder)


def empty(folder: str) -> bool:
    """Remove everything in the folder and return whether it is empty."""
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
        _empty(os.open(folder, _FLAGS))
        return True
    return False


def _empty(fd: int) -> None:
    """Remove everything in the folder. It enters folders by name and leaves by `..`, so one descriptor is enough."""
    ahead: list[list[str]] = []  # for every open level, the names that still have to be removed
    above: list[str] = []  # the names of the folders on the way down to here
    try:
        ahead.append(_cleared(fd))
        while ahead[-1] or above:
            if ahead[-1]:
                above.append(ahead[-1].pop())
                os.chmod(above[-1], 0o700, dir_fd=fd)
                fd, left = os.open(above[-1], _FLAGS, dir_fd=fd), fd
                os.close(left)
                ahead.append(_cleared(fd))
            else:
                ahead.pop()
                fd, left = os.open("..", _FLAGS, dir_fd=fd), fd
                os.close(left)
                os.rmdir(above.pop(), dir_fd=fd)
    finally:
        os.close(fd)


def _cleared(fd: int) -> list[str]:
    """Remove the files of a folder and return the names of its subfolders."""
    folders = []
    with os.scandir(fd) as found:
        for entry in list(found):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=fd)
    return folders

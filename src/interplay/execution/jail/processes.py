"""Reads what the kernel knows about the processes of a job.

`proc` is a descriptor of /proc that was opened before the process was isolated. Every thread is checked, because each
can have its own descriptors, and if the first thread of a process has ended, only the others show its memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time

PIPE = 16 * os.sysconf("SC_PAGESIZE") / (1 << 20)  # megabytes that the kernel uses for one pipe: 16 pages


def kernel() -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2])


def read(name: str, proc: int, size: int = 1 << 16) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def listed(name: str, proc: int) -> list[str]:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def processes_of(uid: int, proc: int) -> int:
    """The number of tasks that already count against the limit of this user."""
    count = 0
    for name in os.listdir(proc):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=proc).st_uid == uid:
                    count += os.stat(f"{name}/task", dir_fd=proc).st_nlink - 2
    return count


def family(pid: int, proc: int, itself: bool = False) -> dict[int, list[str]]:
    """The descendants of a process (and the process `itself`), each with its threads (as `pid/task/tid`)."""
    found: dict[int, list[str]] = {}
    ahead = [pid]
    while ahead:
        one = ahead.pop()
        tasks = []
        with contextlib.suppress(OSError):
            tasks = [f"{one}/task/{tid}" for tid in listed(f"{one}/task", proc)]
        if itself or one != pid:
            found[one] = tasks
        for task in tasks:
            with contextlib.suppress(OSError, ValueError):
                ahead += [int(n) for n in read(f"{task}/children", proc).split() if int(n) not in found]
    return found


def ended(tasks: list[str], proc: int) -> bool:
    """Whether a process has ended and only waits for its parent: all its threads have ended, not only the first one."""
    for task in tasks:
        with contextlib.suppress(OSError, IndexError):
            if read(f"{task}/stat", proc).rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                return False
    return True


def runs(task: str, proc: int) -> bool:
    """Whether a thread uses a processor or waits for one."""
    with contextlib.suppress(OSError, IndexError):
        return read(f"{task}/stat", proc).rpartition(b")")[2].split()[0] == b"R"
    return False


def end_all(proc: int, seconds: float) -> bool:
    """End every descendant of this process, which also becomes the parent of orphans (a subreaper). Returns whether
    none is left.

    Ended processes are waited for only when no living one is seen. Until then they keep their places in the process
    limit, so that no new ones can start. A process can be missed while its parent changes; only the kernel knows for
    certain that none is left."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        left = [pid for pid, tasks in family(os.getpid(), proc).items() if not ended(tasks, proc)]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return True
            time.sleep(0.0005)
    return False


def memory_of(tasks: list[str], proc: int) -> float:
    """The megabytes of one process. If the kernel says so, shared pages are divided among their users."""
    for task in tasks:
        for name in ("smaps_rollup", "statm"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = read(f"{task}/{name}", proc, 4096).decode()
                if name == "statm":
                    found = int(text.split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)
                else:
                    found = int(text.split("Pss:")[1].split()[0]) / 1024
                if found:
                    return found
    return 0.0


def resident(pid: int, proc: int) -> float:
    """The megabytes in memory of one process; pages that it shares with others count in full."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read(f"{pid}/statm", proc, 4096).split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)
    return 0.0


def cpu_seconds(pid: int, proc: int) -> float:
    """The CPU time that one process has used until now."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = read(f"{pid}/stat", proc, 4096).rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def new_children(known: set[int], proc: int) -> dict[int, int]:
    """The children of this process that `proc` shows under a number that is not known, by their number in the namespace
    of this process."""
    own, found = os.readlink("self", dir_fd=proc), {}
    for pid in map(int, read(f"{own}/task/{own}/children", proc).split()):
        if pid not in known:
            with contextlib.suppress(OSError, ValueError, IndexError):
                numbers = read(f"{pid}/status", proc).decode().split("NSpid:")[1].split("\n")[0].split()
                found[int(numbers[-2])] = pid  # the last one is its number in its own namespace
    return found


def buffer_size(proc: int) -> float:
    """The megabytes that one socket may use."""
    with contextlib.suppress(OSError, ValueError):
        return int(read("sys/net/core/wmem_default", proc)) / (1 << 20)
    return 0.25


def held_open(tasks: list[str], proc: int, socket: float) -> tuple[dict[int, float], float]:
    """Files without a name, in megabytes by inode, and the megabytes that pipes and sockets may use. Neither is part of
    a folder or of a process. What several threads or processes share is counted once."""
    deleted: dict[int, float] = {}
    kept: dict[int, float] = {}
    for task in tasks:
        with contextlib.suppress(OSError), contextlib.ExitStack() as undo:
            fd = os.open(f"{task}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
            undo.callback(os.close, fd)
            for name in os.listdir(fd):
                with contextlib.suppress(OSError):
                    found = os.stat(name, dir_fd=fd)
                    if stat.S_ISSOCK(found.st_mode):
                        kept[found.st_ino] = socket
                    elif stat.S_ISFIFO(found.st_mode):
                        kept[found.st_ino] = PIPE
                    elif stat.S_ISREG(found.st_mode) and not found.st_nlink:
                        deleted[found.st_ino] = found.st_blocks * 512 / (1 << 20)
    return deleted, sum(kept.values())


def mapped(tasks: list[str], proc: int) -> set[int]:
    """Files without a name that these tasks have mapped into memory, by inode. A mapping needs no descriptor, and it
    does not show the size of its file."""
    found = set()
    for task in tasks:
        with contextlib.suppress(OSError):
            fd = os.open(f"{task}/maps", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
            with os.fdopen(fd, "rb") as lines:
                for line in lines:
                    if line.endswith(b" (deleted)\n") and not line.split()[5].startswith(b"/dev/zero"):
                        found.add(int(line.split()[4]))
    return found

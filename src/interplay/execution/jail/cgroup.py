"""Control groups (cgroups v2): the kernel itself counts the memory and the processes of a job.

It also counts memory that belongs to no process: buffers of sockets and pipes, pages that only the kernel uses, and
files in memory. It needs a group that this user may divide, with the controllers `memory` and `pids`: any group above
our own that was given to us (systemd gives one to every user's session) or, for root, the machine's group. If there is
no such group, the processes are checked instead (`processes.py`).

Standard library only, and complete in one file, because workers of outside programs import it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

CONTROLLERS = ("memory", "pids")
OVERHEAD = 32.0  # megabytes for process 1 of the job and for the kernel's data about its processes
OURS = 2  # processes that are not the program's own: init, and the first process of the program
WRITTEN = ("memory.max", "memory.oom.group", "pids.max", "cgroup.procs")
READ = ("memory.events", "pids.events", "pids.current", "cgroup.events")
LATER = ("memory.swap.max", "cgroup.kill")  # files that older kernels do not have
PREFIX = "interplay-"
OLD = 60.0  # seconds after which a group that nobody has locked counts as left behind


class Cgroup:
    """Its files are opened before the process is isolated, because afterwards their paths cannot be reached. While one
    of them is open in any process, the group is locked, and `sweep` does not remove it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files: dict[str, int] = {}
        try:
            for name in WRITTEN:
                self.files[name] = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            for name in READ:
                self.files[name] = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            for name in LATER:
                with contextlib.suppress(OSError):
                    self.files[name] = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
            self.lock(fcntl.LOCK_SH)
        except OSError:
            self.close()
            raise

    def lock(self, how: int) -> None:
        fcntl.flock(self.files["cgroup.events"], how | fcntl.LOCK_NB)

    def close(self) -> None:
        for fd in self.files.values():
            os.close(fd)
        self.files.clear()

    def _write(self, name: str, value: int) -> None:
        os.pwrite(self.files[name], str(value).encode(), 0)

    def _count(self, name: str, key: str) -> int:
        lines = os.pread(self.files[name], 4096, 0).decode().splitlines()
        return next((int(line.split()[1]) for line in lines if line.split()[0] == key), 0)

    def limit(self, memory_mb: float, processes: int) -> None:
        """Set the limits for the next job and forget the counts of earlier jobs."""
        self._write("memory.max", int((memory_mb + OVERHEAD) * (1 << 20)))
        self._write("pids.max", processes + OURS)
        self._write("memory.oom.group", 1)
        if "memory.swap.max" in self.files:
            self._write("memory.swap.max", 0)
        self.before = self._count("memory.events", "oom_kill"), self._count("pids.events", "max")

    def enter(self) -> None:
        self._write("cgroup.procs", 0)

    def excess(self) -> str:
        """The name of the limit that the job reached; empty if it reached none."""
        now = self._count("memory.events", "oom_kill"), self._count("pids.events", "max")
        return "memory" if now[0] > self.before[0] else "processes" if now[1] > self.before[1] else ""

    def tasks(self) -> int:
        """How many threads all processes in the group have together."""
        return int(os.pread(self.files["pids.current"], 4096, 0))

    def kill(self, seconds: float) -> bool:
        """End every process in the group. Returns whether this is possible and was done."""
        if "cgroup.kill" not in self.files:
            return False
        until = time.monotonic() + seconds
        self._write("cgroup.kill", 1)
        while self._count("cgroup.events", "populated") and time.monotonic() < until:
            time.sleep(0.001)
        return not self._count("cgroup.events", "populated")

    def remove(self) -> None:
        """End what is left in the group and remove it."""
        with contextlib.suppress(OSError):
            self.kill(5.0)
            os.rmdir(self.path)
        self.close()


def find_place() -> tuple[str, str]:
    """The path of a group in which we can make groups, or an empty path and the reason why there is none."""
    try:
        mount, here = _own()
    except (OSError, ValueError) as error:
        return "", f"cgroups v2 are not mounted ({error})"
    reason = "no control group above this process may be divided by this user with the controllers memory and pids"
    while True:
        if _divides(here, here == mount):
            sweep(here)
            return here, ""
        if here == mount or _limited(here):  # never leave a group with a limit that somebody set for us
            return "", reason
        here = os.path.dirname(here)


def make_cgroup(place: str) -> Cgroup:
    path = f"{place}/{PREFIX}{os.urandom(8).hex()}"
    os.mkdir(path)
    try:
        return Cgroup(path)
    except OSError:
        os.rmdir(path)
        raise


def sweep(place: str) -> None:
    """Remove the groups that killed processes left behind. Their locks went with the processes."""
    for entry in os.scandir(place):
        with contextlib.suppress(OSError):
            if entry.name.startswith(PREFIX) and time.time() - entry.stat().st_mtime > OLD:
                left = Cgroup(entry.path)
                try:
                    left.lock(fcntl.LOCK_EX)
                except BlockingIOError:
                    left.close()
                else:
                    left.remove()


def _own() -> tuple[str, str]:
    """The place where cgroups v2 are mounted, and the group of this process."""
    with open("/proc/self/mountinfo") as table:
        mounts = [line.split(" - ") for line in table]
    found = [(left.split()[3], left.split()[4]) for left, right in mounts if right.split()[0] == "cgroup2"]
    with open("/proc/self/cgroup") as table:
        own = [line.strip()[3:] for line in table if line.startswith("0::")]
    if not found or not own:
        raise ValueError("the kernel lists no group")
    root, mount = found[0]
    inside = os.path.relpath(own[0], root)
    if inside.startswith(".."):
        raise ValueError("the group of this process is not visible")
    return mount, os.path.normpath(os.path.join(mount, inside))


def _limited(path: str) -> bool:
    try:
        with open(f"{path}/memory.max") as file:
            return file.read().strip() != "max"
    except OSError:
        return False


def _divides(path: str, top: bool) -> bool:
    """Whether this process may make a group inside the group `path`, and move one of its own processes there."""
    if top:  # only the topmost group may have processes itself and give its parts these controllers
        with contextlib.suppress(OSError), open(f"{path}/cgroup.subtree_control", "w") as file:
            file.write(" ".join(f"+{name}" for name in CONTROLLERS))
    with contextlib.suppress(OSError):
        made = make_cgroup(path)
        try:
            return _enters(made)
        finally:
            made.remove()
    return False


def _enters(cgroup: Cgroup) -> bool:
    """Whether one of our processes can be moved into the group."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            cgroup.enter()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0

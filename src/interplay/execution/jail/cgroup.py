"""A control group (cgroups v2) for the jobs of one worker: the kernel itself counts their memory and processes.

It also counts memory that belongs to no process: buffers of sockets and pipes, pages that only the kernel uses, and
files in memory. It needs a group that this user may divide, with the controllers `memory` and `pids`: any group above
our own that was given to us (systemd gives one to every user's session) or, for root, the machine's group. If there is
no such group, the supervisor checks the processes instead (`processes.py`).
"""

from __future__ import annotations

import contextlib
import os
import time

from interplay.execution.jail.syscall import fork

CONTROLLERS = ("memory", "pids")
OVERHEAD = 32.0  # megabytes for process 1 of the job and for the kernel's data about its processes
OURS = 2  # processes that are not the program's own: init, and the first process of the program
WRITTEN = ("cgroup.procs", "memory.max", "memory.oom.group", "pids.max")
LATER = ("memory.swap.max", "cgroup.kill")  # files that older kernels do not have


class Cgroup:
    """Its files are opened before the process is isolated, because afterwards their paths cannot be reached."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = {name: os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC) for name in WRITTEN}
        for name in LATER:
            with contextlib.suppress(OSError):
                self.files[name] = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        for name in ("memory.events", "pids.events", "cgroup.events"):
            self.files[name] = os.open(f"{path}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def _write(self, name: str, value: int) -> None:
        os.pwrite(self.files[name], str(value).encode(), 0)

    def _count(self, name: str, key: str) -> int:
        words = os.pread(self.files[name], 4096, 0).split()
        return int(dict(zip(words[::2], words[1::2], strict=False)).get(key.encode(), 0))

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
        with contextlib.suppress(OSError):
            self.kill(5.0)
            os.rmdir(self.path)


def make_cgroup() -> tuple[Cgroup | None, str]:
    """Make our own group, or return the reason why this is not possible."""
    try:
        mount, here = _own()
    except (OSError, ValueError) as error:
        return None, f"cgroups v2 are not mounted ({error})"
    reason = "no control group above this process may be divided by this user with the controllers memory and pids"
    while True:
        if (made := _divided(here, here == mount)) is not None:
            return made, ""
        if here == mount or _limited(here):  # never leave a group with a limit that somebody set for us
            return None, reason
        here = os.path.dirname(here)


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


def _divided(path: str, top: bool) -> Cgroup | None:
    made = f"{path}/interplay-{os.getpid()}"
    try:
        os.mkdir(made)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if top and not os.path.exists(f"{made}/memory.max"):  # only the topmost group may have processes itself
            with open(f"{path}/cgroup.subtree_control", "w") as file:
                file.write(" ".join(f"+{name}" for name in CONTROLLERS))
        cgroup = Cgroup(made)
        if _enters(cgroup):
            return cgroup
    with contextlib.suppress(OSError):
        os.rmdir(made)
    return None


def _enters(cgroup: Cgroup) -> bool:
    """Whether one of our processes can be moved into the group."""
    child = fork()
    if child == 0:
        code = 1
        try:
            cgroup.enter()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0

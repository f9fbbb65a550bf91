"""The supervisor: outside the walls, one for each job. It starts the job, watches it, ends it and reports.

Whatever a program does is a result. Only what goes wrong before the program begins is a `JailError`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

from interplay.execution.jail.folder import remove, size_of
from interplay.execution.jail.init import run_init
from interplay.execution.jail.job import ReceivedJob
from interplay.execution.jail.namespaces import PRIVATE
from interplay.execution.jail.processes import (
    buffer_size,
    end_all,
    family,
    held_open,
    kernel,
    mapped,
    memory_of,
    processes_of,
)
from interplay.execution.jail.site import Site
from interplay.execution.jail.syscall import LIBC, NEWNS, NEWPID, SET_SUBREAPER, call, fork

WATCH = 0.05  # seconds between looks at memory, processes and disk
ENDING = 10.0  # seconds after which processes that cannot be ended are left to whoever started this worker
SLACK = 64  # processes this user may start elsewhere meanwhile, where the kernel counts them all together


class Supervisor:
    """The processes of one job and their folder."""

    def __init__(self, channel: socket.socket, site: Site, job: ReceivedJob) -> None:
        self.channel, self.site, self.job = channel, site, job
        self.cause = ""  # the limit for which it was ended
        self.init = 0
        self.folder = PRIVATE
        self.over = False
        self.gone = True  # nothing of it is left

    def start(self, pipes: tuple[int, int, int], ours: list[int]) -> int:
        """Starts init with the program's three descriptors, and without ours. Gives where its report can be read."""
        if self.site.level == "namespaces":
            call("namespaces", LIBC.unshare(NEWPID | NEWNS))
        else:
            LIBC.prctl(SET_SUBREAPER, 1, 0, 0, 0)
            self.folder = os.path.join(self.site.folder, f"job-{os.getpid()}")
            os.mkdir(self.folder, 0o700)
        self.job.running = self._running()
        if self.site.cgroup is not None:
            limits = self.job.limits
            in_memory = limits["files_mb"] if self.site.level == "namespaces" else 0
            self.site.cgroup.limit(limits["memory_mb"] + in_memory, int(limits["processes"]))
        heard, report = os.pipe()
        self.init = fork()
        if self.init == 0:
            for fd in (*ours, heard):
                os.close(fd)
            self.channel.close()
            run_init(self.job, self.site, self.folder, pipes, report)
        for fd in {*pipes, report}:
            os.close(fd)
        return heard

    def _running(self) -> int:
        """Processes that the kernel counts besides the program's own."""
        if self.site.level == "namespaces" and kernel() >= (5, 14):
            return 3  # a user namespace counts its own: zygote, supervisor, init
        return processes_of(os.geteuid(), self.site.proc) + SLACK

    def look(self) -> None:
        """What no limit of a single process sees: all of them together."""
        limits, proc, level = self.job.limits, self.site.proc, self.site.level
        if self.site.cgroup is not None and level == "namespaces":
            return  # the kernel looks
        members = family(self.init, proc)
        tasks = [task for found in members.values() for task in found]
        deleted, buffers = held_open(tasks, proc, buffer_size(proc))
        if self.site.cgroup is None:
            if sum(memory_of(found, proc) for found in members.values()) + buffers > limits["memory_mb"]:
                self.stop("memory")
            elif len(members) > limits["processes"]:
                self.stop("processes")
        if level != "namespaces" and self._disk(tasks, deleted) > limits["files_mb"]:
            self.stop("disk")

    def _disk(self, tasks: list[str], deleted: dict[int, float]) -> float:
        most = self.job.limits["files_mb"]
        unknown = most * len(mapped(tasks, self.site.proc) - deleted.keys())
        return size_of(self.folder, most) + sum(deleted.values()) + unknown

    def stop(self, cause: str) -> None:
        self.cause = self.cause or cause
        self.end()

    def end(self) -> None:
        """Every process of the job is gone when this returns, or cannot be ended."""
        if self.over or not self.init:
            return
        self.over = True
        if self.site.cgroup is not None:
            self.site.cgroup.kill(ENDING)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        if self.site.level == "namespaces":
            self.gone = _wait(self.init, ENDING)  # and with it, every process of its namespace
        else:
            self.gone = end_all(self.site.proc, ENDING)

    def clean(self) -> bool:
        """Whether this worker can run another job."""
        self.end()
        return self.gone and (self.folder == PRIVATE or remove(self.folder))


def _wait(pid: int, seconds: float) -> bool:
    """Whether it ended in time."""
    with contextlib.suppress(OSError, AttributeError):  # not in every kernel, nor in every build of Python
        fd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return True

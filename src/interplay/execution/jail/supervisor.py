"""The supervisor: one process per job, outside the job's isolation. It starts, watches and ends the job, and reports.

Everything that a program does gives a result. Only an error before the program starts is a `JailError`.
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

WATCH = 0.05  # seconds between two checks of memory, processes and disk
ENDING = 10.0  # seconds after which processes that cannot be ended are left to the process that started this worker
SLACK = 64  # processes that this user may start elsewhere meanwhile, if the kernel counts all of them together


class Supervisor:
    """The processes of one job and their folder."""

    def __init__(self, channel: socket.socket, site: Site, job: ReceivedJob) -> None:
        self.channel, self.site, self.job = channel, site, job
        self.cause = ""  # the limit because of which the job was ended
        self.init = 0
        self.folder = PRIVATE
        self.over = False
        self.gone = True  # whether no process of the job is left

    def start(self, pipes: tuple[int, int, int], ours: list[int]) -> int:
        """Start init with the program's three descriptors and without ours. Returns the descriptor from which its
        report can be read."""
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
        """The number of processes that the kernel counts in addition to the program's own."""
        if self.site.level == "namespaces" and kernel() >= (5, 14):
            return 3  # a user namespace counts only its own: zygote, supervisor, init
        return processes_of(os.geteuid(), self.site.proc) + SLACK

    def look(self) -> None:
        """Check the limits that hold for all processes together, which no limit of a single process covers."""
        limits, proc, level = self.job.limits, self.site.proc, self.site.level
        if self.site.cgroup is not None and level == "namespaces":
            return  # the kernel enforces them
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
        """End every process of the job. When this returns, all of them are gone or cannot be ended."""
        if self.over or not self.init:
            return
        self.over = True
        if self.site.cgroup is not None:
            self.site.cgroup.kill(ENDING)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        if self.site.level == "namespaces":
            self.gone = _wait(self.init, ENDING)  # when init ends, every process of its namespace ends
        else:
            self.gone = end_all(self.site.proc, ENDING)

    def clean(self) -> bool:
        """Clean up. Returns whether this worker can run another job."""
        self.end()
        return self.gone and (self.folder == PRIVATE or remove(self.folder))


def _wait(pid: int, seconds: float) -> bool:
    """Wait for a process. Returns whether it ended in time."""
    with contextlib.suppress(OSError, AttributeError):  # not all kernels and builds of Python have this
        fd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    return True

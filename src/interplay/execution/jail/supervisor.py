"""The supervisor: one job, from the channel to the report."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time

from interplay.execution.jail.init import PRIVATE, run_init
from interplay.execution.jail.job import ReceivedJob, receive, send
from interplay.execution.jail.processes import family, held_open, kernel, memory_of, processes_of, remove, size_of
from interplay.execution.jail.syscall import LIBC, NEWNS, NEWPID, SET_PDEATHSIG, SET_SUBREAPER, JailError, call, fork

WATCH = 0.05  # seconds between looks at memory, processes and disk
SLACK = 64  # processes this user may start elsewhere meanwhile, where the kernel counts them all together


def supervise(channel: socket.socket, level: str, folder: str, readable: list[str], proc: int) -> None:
    LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    supervisor = None
    code = 0
    try:
        supervisor = Supervisor(channel, level, folder, readable, proc)
        send(channel, supervisor.run())
    except (JailError, OSError) as error:
        with contextlib.suppress(OSError):
            send(channel, {"trouble": str(error)})
        code = 1  # the channel may hold the rest of a job: the zygote ends with it
    finally:
        if supervisor is not None:
            supervisor.clean()
        os._exit(code)


class Supervisor:
    """One job, from the channel to the report."""

    def __init__(self, channel: socket.socket, level: str, folder: str, readable: list[str], proc: int) -> None:
        self.channel, self.level, self.folder, self.readable, self.proc = channel, level, folder, readable, proc
        self.job = ReceivedJob(channel)
        self.cause = ""  # why it was ended before its time

    def start(self) -> tuple[int, tuple[int, int, int], int]:
        """The pid of init; the ends of the program's three pipes and of init's report."""
        if self.level == "namespaces":
            call("namespaces", LIBC.unshare(NEWPID | NEWNS))
            folder = PRIVATE
            # Since Linux 5.14 a user namespace counts its own: supervisor and init besides the program's.
            self.job.running = 3 if kernel() >= (5, 14) else processes_of(os.geteuid(), self.proc) + SLACK
        else:
            LIBC.prctl(SET_SUBREAPER, 1, 0, 0, 0)
            folder = os.path.join(self.folder, str(os.getpid()))
            os.mkdir(folder, 0o700)
            self.job.running = processes_of(os.geteuid(), self.proc) + SLACK
        self.job_folder = folder
        ours, theirs = zip(*(os.pipe()[:: 1 if fd else -1] for fd in range(3)), strict=True)
        heard, report = os.pipe()
        init = fork()
        if init == 0:
            for fd in (*ours, heard):
                os.close(fd)
            self.channel.close()
            run_init(self.job, self.level, folder, self.readable, theirs, report)
        for fd in (*theirs, report):
            os.close(fd)
        return init, ours, heard

    def run(self) -> dict[str, object]:
        began = time.monotonic()
        init, (stdin, stdout, stderr), heard = self.start()
        ahead = memoryview(receive(self.channel, self.job.stdin_size))  # only now: it is in nobody else's memory
        limits, report = self.job.limits, b""
        output = {stdout: bytearray(), stderr: bytearray()}
        room, deadline, look = int(limits["output_kb"] * 1024), began + limits["seconds"], began + WATCH
        poll = select.poll()
        for fd in (stdout, stderr, heard, self.channel.fileno()):
            poll.register(fd, select.POLLIN)
        poll.register(stdin, select.POLLOUT)
        os.set_blocking(stdin, False)
        left = {stdin, stdout, stderr, heard}

        def close(fd: int) -> None:
            poll.unregister(fd)
            os.close(fd)
            left.discard(fd)

        while left - {stdin}:
            now = time.monotonic()
            if now >= deadline:
                self.stop(init, "timeout")
            if now >= look and heard in left:
                self.watch(init)
                look = time.monotonic() + WATCH
            waiting = max(0.0, min(deadline, look) - now) if heard in left and not self.cause else 1.0
            for fd, _ in poll.poll(waiting * 1000 + 1):
                if fd == self.channel.fileno():  # nothing is said during a job: the other end is gone
                    self.stop(init, "killed")
                    raise JailError("nobody waits for this result any more")
                if fd == stdin:
                    try:
                        ahead = ahead[os.write(stdin, ahead[: 1 << 16]) :] if ahead else ahead
                    except OSError:  # the program closed its end, and may
                        ahead = ahead[:0]
                    if not ahead:
                        close(stdin)
                elif fd == heard:
                    part = os.read(heard, 4096)
                    report += part
                    if not part:
                        close(heard)
                        self.reap(init)
                else:
                    part = os.read(fd, 1 << 16)
                    output[fd] += part[:room]
                    if len(part) > room:
                        self.stop(init, "output")
                    room = max(0, room - len(part))
                    if not part:
                        close(fd)
        said = json.loads(report) if report else {}
        if "trouble" in said:
            raise JailError(said["trouble"])
        if not said and not self.cause:
            raise JailError("the first process of the job was ended from outside, by the machine's memory or by hand")
        return self.verdict(said, output[stdout], output[stderr], time.monotonic() - began)

    def verdict(self, said: dict, stdout: bytearray, stderr: bytearray, seconds: float) -> dict[str, object]:
        code = os.waitstatus_to_exitcode(said["status"]) if said else None
        last = bytes(stderr[-400:]).decode(errors="replace")
        status = self.cause
        if status:
            code = None
        elif code == 0:
            status = "ok"
        elif code == -signal.SIGXCPU or (code == -signal.SIGKILL and said["cpu"] >= self.job.limits["cpu_seconds"]):
            status = "timeout"
        elif code == -signal.SIGXFSZ or said["full"] or "[Errno 28]" in last or "[Errno 27]" in last:
            status = "disk"
        elif "\nMemoryError" in last or "[Errno 12]" in last:
            status = "memory"
        elif "can't start new thread" in last or "BlockingIOError: [Errno 11]" in last:
            status = "processes"
        else:
            status = "killed" if code is not None and code < 0 else "error"
        return {"status": status, "code": code, "seconds": seconds, "stdout": stdout, "stderr": stderr}

    def watch(self, init: int) -> None:
        """What no limit of a single process sees: all of them together."""
        limits, members = self.job.limits, family(init, self.proc)
        deleted, buffers = held_open(members, self.proc)
        if sum(memory_of(pid, self.proc) for pid in members) + buffers > limits["memory_mb"]:
            self.stop(init, "memory")
        elif len(members) > limits["processes"]:
            self.stop(init, "processes")
        elif self.level != "namespaces" and size_of(self.job_folder) + deleted > limits["files_mb"]:
            self.stop(init, "disk")

    def stop(self, init: int, cause: str) -> None:
        if self.cause:
            return
        self.cause = cause
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)
        self.reap(init)

    def reap(self, init: int) -> None:
        """Every process of the job is gone when this returns. With init went its namespace; elsewhere, one by one."""
        while self.level != "namespaces" and (left := family(os.getpid(), self.proc)):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
        with contextlib.suppress(ChildProcessError):
            os.waitpid(init, 0)

    def clean(self) -> None:
        if self.level != "namespaces" and hasattr(self, "job_folder"):
            remove(self.job_folder)

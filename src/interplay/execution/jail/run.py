"""Runs one job, from the channel to the report: writes standard input, collects output and enforces limits."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from typing import Any

from interplay.execution.jail.job import ReceivedJob, receive
from interplay.execution.jail.site import Site
from interplay.execution.jail.supervisor import WATCH, Supervisor
from interplay.execution.jail.syscall import JailError


class Run:
    def __init__(self, channel: socket.socket, site: Site) -> None:
        self.channel = channel
        self.supervisor = Supervisor(channel, site, ReceivedJob(channel))
        self.limits = self.supervisor.job.limits
        self.room = int(self.limits["output_kb"] * 1024)
        self.poll = select.poll()
        self.left: set[int] = set()  # descriptors that can still be read or written
        self.report = b""

    def answer(self) -> dict[str, Any]:
        began = time.monotonic()
        ours, theirs = zip(*(os.pipe()[:: 1 if fd else -1] for fd in range(3)), strict=True)
        self.stdin, stdout, stderr = ours
        self.heard = self.supervisor.start(theirs, list(ours))
        # The input is received only now, so that it is in no other process's memory.
        self.ahead = memoryview(receive(self.channel, self.supervisor.job.stdin_size))
        self.output = {stdout: bytearray(), stderr: bytearray()}
        os.set_blocking(self.stdin, False)
        self.poll.register(self.stdin, select.POLLOUT)
        self.poll.register(self.channel, select.POLLIN)
        for fd in (stdout, stderr, self.heard):
            self.poll.register(fd, select.POLLIN)
        self.left = {self.stdin, stdout, stderr, self.heard}
        self._follow(began + self.limits["seconds"])
        return self._verdict(self.output[stdout], self.output[stderr], time.monotonic() - began)

    def _follow(self, deadline: float) -> None:
        """Wait until the program has ended and all its output is read."""
        look = time.monotonic() + WATCH
        while self.left - {self.stdin}:
            now = time.monotonic()
            if now >= deadline:
                self.supervisor.stop("timeout")
            if now >= look and not self.supervisor.over:
                self.supervisor.look()
                look = time.monotonic() + WATCH
            waiting = 1.0 if self.supervisor.over else max(0.0, min(deadline, look) - now)
            for fd, _ in self.poll.poll(waiting * 1000 + 1):
                if fd == self.channel.fileno():  # no message is sent during a job, so the other end was closed
                    raise EOFError("nobody waits for this result any more")
                if fd == self.stdin:
                    self._feed()
                else:
                    self._read(fd)

    def _feed(self) -> None:
        try:
            self.ahead = self.ahead[os.write(self.stdin, self.ahead[: 1 << 16]) :] if self.ahead else self.ahead
        except OSError:  # the program has closed its standard input, which is allowed
            self.ahead = self.ahead[:0]
        if not self.ahead:
            self._close(self.stdin)

    def _read(self, fd: int) -> None:
        part = os.read(fd, 1 << 16)
        if fd == self.heard:
            self.report += part
        else:
            self.output[fd] += part[: self.room]
            if len(part) > self.room:
                self.supervisor.stop("output")
            self.room = max(0, self.room - len(part))
        if not part:
            self._close(fd)
            if fd == self.heard:
                self.supervisor.end()

    def _close(self, fd: int) -> None:
        self.poll.unregister(fd)
        os.close(fd)
        self.left.discard(fd)

    def _verdict(self, stdout: bytearray, stderr: bytearray, seconds: float) -> dict[str, Any]:
        said = json.loads(self.report) if self.report else {}
        if "trouble" in said:
            raise JailError(said["trouble"])
        said = said or {"status": signal.SIGKILL, "cpu": 0.0, "full": False, "lost": True}
        code = os.waitstatus_to_exitcode(said["status"])
        cgroup, last = self.supervisor.site.cgroup, bytes(stderr[-400:]).decode(errors="replace")
        met = cgroup.excess() if cgroup is not None else ""
        lost = not self.supervisor.cause and not met and said.get("lost", False)
        status = self.supervisor.cause or _named(code, said, self.limits["cpu_seconds"], last, met)
        ended = self.supervisor.cause or said.get("lost")
        answer = {"status": status, "code": None if ended else code, "seconds": seconds, "lost": lost}
        return {**answer, "stdout": stdout, "stderr": stderr}


def _named(code: int, said: dict[str, Any], seconds: float, last: str, met: str) -> str:
    """The status of a program that we did not end. `last` is the end of its output, and `met` is the limit that the
    kernel reported."""
    if code == 0:
        return "ok"
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and said["cpu"] >= seconds):
        return "timeout"
    if code == -signal.SIGXFSZ or said["full"] or "[Errno 28]" in last or "[Errno 27]" in last:
        return "disk"
    if met == "memory" or "\nMemoryError" in last or "[Errno 12]" in last:
        return "memory"
    if met == "processes" or "can't start new thread" in last or "BlockingIOError: [Errno 11]" in last:
        return "processes"
    return "killed" if code < 0 else "error"

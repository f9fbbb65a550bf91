"""One run of a service, from its first question to its last: passes questions and answers on, and enforces limits.

A question that exceeds a limit ends the service. The next question starts it again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from typing import Any

from interplay.execution.jail.job import ReceivedJob, ReceivedQuestion, receive_answer
from interplay.execution.jail.site import Site
from interplay.execution.jail.supervisor import WATCH, Supervisor
from interplay.execution.jail.syscall import JailError

LIMITS = {"cpu_seconds": 1e10, "memory_mb": 4096.0, "files_mb": 2048.0, "processes": 4}  # for the service itself


class ServiceJob(ReceivedJob):
    """A job without a message, because the first question starts a service."""

    def __init__(self) -> None:
        self.limits, self.argv, self.harness, self.source, self.files = dict(LIMITS), [], "", b"", {}
        self.stdin_size = self.running = 0


class ServiceSession:
    def __init__(self, channel: socket.socket, site: Site) -> None:
        self.channel = channel
        self.supervisor = Supervisor(channel, site, ServiceJob())
        self.service, theirs = socket.socketpair()
        null = os.open("/dev/null", os.O_RDWR)
        self.report = self.supervisor.start((theirs.detach(), null, null), [self.service.fileno()])
        self.poll = select.poll()
        for fd in (self.service.fileno(), self.report, self.channel.fileno()):
            self.poll.register(fd, select.POLLIN)

    def answer(self) -> dict[str, Any]:
        """Answer the next question in the channel."""
        question, began = ReceivedQuestion(self.channel), time.monotonic()
        self.supervisor.job.limits["memory_mb"] = question.limits["memory_mb"]
        with contextlib.suppress(OSError):  # the service has ended
            question.forward(self.service)
            if answer := self._answer(began + question.limits["seconds"]):
                return answer
        self.supervisor.end()
        said = os.read(self.report, 4096)
        if said and "trouble" in (report := json.loads(said)):
            raise JailError(report["trouble"])
        cgroup = self.supervisor.site.cgroup
        status = self.supervisor.cause or (cgroup.excess() if cgroup is not None else "")
        return {"status": status or "killed", "code": None, "seconds": time.monotonic() - began, "lost": not status}

    def leave(self) -> None:
        """Called when no more questions come: give the service a second to end by itself, so that its CPU time is
        counted."""
        self.poll.unregister(self.channel)
        self.poll.unregister(self.service)
        self.service.close()
        self.poll.poll(1000)

    def _answer(self, deadline: float) -> dict[str, Any] | None:
        while not self.supervisor.over:
            left = deadline - time.monotonic()
            found = {fd for fd, _ in self.poll.poll(max(0.0, min(left, WATCH)) * 1000 + 1)}
            if self.channel.fileno() in found:
                raise EOFError("nobody waits for this result any more")
            if self.service.fileno() in found:
                try:
                    return receive_answer(self.service)
                except EOFError:
                    return None
            if self.report in found:
                return None
            if left <= 0:
                self.supervisor.stop("timeout")
            elif not found:
                self.supervisor.look()
        return None

"""One worker of the sandbox: a process of the jail, and the channel to it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from interplay.errors import SandboxError
from interplay.execution.job import Job, RunResult

IsolationLevel = Literal["namespaces", "landlock", "rlimits"]
# The package is on the path only until its part that runs there is imported.
START = """
import sys
sys.path.insert(0, sys.argv[4])
from interplay.execution.jail.zygote import main
del sys.path[0]
main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
"""
SOURCE = str(Path(__file__).parents[2])
GRACE = 30.0  # seconds past its limit after which a worker that has not answered counts as dead


class SandboxWorker:
    """One zygote and the channel to it."""

    def __init__(self, level: IsolationLevel) -> None:
        self.level = level
        self.folder = tempfile.mkdtemp(prefix="interplay-")
        self.channel, theirs = socket.socketpair()
        with theirs:
            python: str = getattr(sys, "_base_executable", None) or sys.executable
            command = [python, "-s", "-S", "-P", "-c", START, str(theirs.fileno()), level, self.folder, SOURCE]
            self.process = subprocess.Popen(
                command,
                env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "LANG": "C.UTF-8"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self.channel.settimeout(GRACE)
            self._answer()
            undo.pop_all()

    def run(self, job: Job) -> RunResult:
        try:
            self.channel.settimeout(job.limits.seconds + GRACE)
            self.channel.sendall(job.encoded())
            head, stdout, stderr = self._answer()
        except OSError as error:
            raise SandboxError(f"a sandbox worker died ({error}); the machine may be out of memory.") from None
        out, err = (part.decode("utf-8", "replace") for part in (stdout, stderr))
        return RunResult(head["status"], out, err, head["code"], head["seconds"])

    def _answer(self) -> tuple[dict, bytes, bytes]:
        head = json.loads(self._read(struct.unpack("I", self._read(4))[0]))
        parts = [self._read(size) for size in head["sizes"]]
        if "trouble" in head:
            raise SandboxError(f"{head['trouble']} (sandbox level '{self.level}').")
        return head, parts[0], parts[1]

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.channel.recv(min(1 << 20, size - len(parts)))
            if not part:
                raise ConnectionError("it closed its channel")
            parts += part
        return bytes(parts)

    def close(self) -> None:
        self.channel.close()  # the zygote ends when it hears nobody
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

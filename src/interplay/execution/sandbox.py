"""Runs programs nobody trusts: a pool of warm interpreters, each program in a jail of its own.

No network, no files but its own folder (and, read-only, the system's binaries and libraries and Python's standard
library), no inherited environment; limits on time, memory, disk, processes and output; ended with all its children.
What the program did is a `RunResult`; that the machinery failed is a `SandboxError`. How strong the walls are:

    namespaces   process and mount namespaces and a folder in memory made afresh for each program, an empty network, a
                 private root, a system-call filter, resource limits. Needs user namespaces; no privileges, no packages.
    landlock     Landlock, a system-call filter and resource limits in a temporary folder. Linux 5.13 or later.
    rlimits      resource limits and a clean environment only: the program can read what this user can. By name only.

`strongest` takes the first of the first two that this machine offers, and refuses a machine that offers neither. A
level is offered if a program that tries to get out, run at start, does not (`offered`). What runs: `jail/`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from interplay.errors import SandboxError, did_you_mean

IsolationLevel = Literal["namespaces", "landlock", "rlimits"]
Isolation = Literal["strongest", "namespaces", "landlock", "rlimits"]
RunStatus = Literal["ok", "error", "timeout", "memory", "output", "disk", "processes", "killed"]
LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)
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


@dataclass(frozen=True)
class Limits:
    """What one program may use, all its processes together; CPU seconds count for each process."""

    seconds: float = 10.0  # on the wall
    cpu_seconds: float = 5.0  # rounded up to whole seconds
    memory_mb: float = 512.0
    files_mb: float = 16.0
    processes: int = 16  # threads count
    output_kb: float = 256.0  # standard output and error together


@dataclass(frozen=True)
class Job:
    """A Python program (`source`), a command (`argv`) or a `harness` of ours (`jail/program.py`); its standard input,
    and the files it finds in its folder."""

    source: str = ""
    argv: tuple[str, ...] = ()
    harness: Literal["", "referee"] = ""
    stdin: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if sum(map(bool, (self.source, self.argv, self.harness))) > 1:
            raise SandboxError("a job has two of source, argv and harness; expected one of them.")
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise SandboxError(f"a job has a file '{name}'; expected a relative path without '..'.")

    def encoded(self) -> bytes:
        source, stdin = self.source.encode("utf-8", "replace"), self.stdin.encode("utf-8", "surrogateescape")
        files = {name: c if isinstance(c, bytes) else c.encode("utf-8", "replace") for name, c in self.files.items()}
        sizes = [(name, len(content)) for name, content in files.items()]
        head = {
            "limits": asdict(self.limits),
            "argv": self.argv,
            "harness": self.harness,
            "source": len(source),
            "files": sizes,
        }
        text = json.dumps({**head, "stdin": len(stdin)}).encode()
        return b"".join((struct.pack("I", len(text)), text, source, *files.values(), stdin))


@dataclass(frozen=True)
class RunResult:
    """What a program did. `ok` is exit code 0 and nothing more: it says nothing about what was computed.

    `error`: another exit code. `killed`: a signal ended it. `timeout`, `memory`, `output`, `disk`, `processes`: it
    failed at, or was ended for, that limit; `code` is None where it was ended. Output is as far as it came.
    """

    status: RunStatus
    stdout: str
    stderr: str
    code: int | None
    seconds: float

    @property
    def ok(self) -> bool:
        return self.status == "ok"


class _Worker:
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


class Sandbox:
    """A pool of `workers` (default: one for each core). Safe to use from many threads; close it, or use `with`."""

    def __init__(self, workers: int | None = None, isolation: Isolation = "strongest") -> None:
        self.level = choose(isolation)
        self.workers = workers or len(os.sched_getaffinity(0))
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(self.workers):
            self._idle.put(None)  # started when first needed
        self._threads = ThreadPoolExecutor(self.workers, "sandbox")
        self._closed = False

    def warm(self) -> Sandbox:
        """Start every worker now, not when it is first needed."""
        held = [self._idle.get() for _ in range(self.workers)]
        try:
            held = [_Worker(self.level) if worker is None else worker for worker in held]
        finally:
            for worker in held:
                self._idle.put(worker)
        return self

    def run(self, job: Job) -> RunResult:
        worker, well = self._idle.get(), False
        try:
            if self._closed:
                raise SandboxError("the sandbox is closed.")
            if worker is None:
                worker = _Worker(self.level)
            result = worker.run(job)
            well = True
            return result
        finally:  # a worker that was interrupted may be in the middle of a job
            if worker is not None and not well:
                worker.close()
                worker = None
            self._idle.put(worker)

    def map(self, jobs: Iterable[Job]) -> list[RunResult]:
        """All results, in the order of the jobs; as many at once as there are workers."""
        return list(self._threads.map(self.run, jobs))

    def close(self) -> None:
        self._closed = True
        self._threads.shutdown()
        for _ in range(self.workers):
            if (worker := self._idle.get()) is not None:
                worker.close()
        for _ in range(self.workers):
            self._idle.put(None)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- what this machine offers -----------------------------------------------------------------------------------------

# Tries what a program must not be able to do; prints what it could.
_ESCAPE = """
import os, socket, sys
could = []
canary, forks = sys.stdin.read().split("\\0")
try:
    open(canary).read(); could.append("read a file outside its folder")
except OSError: pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("127.0.0.1", 9)); could.append("use the network")
except OSError: pass
try:
    os.kill(os.getppid(), 0)
    if os.getppid() != 1: could.append("signal its parent")
except OSError: pass
if set(os.environ) - {"PATH", "LANG", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "HOME", "TMPDIR", "LC_CTYPE"}:
    could.append("read an inherited environment")
try:
    for _ in range(int(forks)):
        if os.fork() == 0: os._exit(0)
    if int(forks): could.append("start more processes than it may")
except OSError: pass
print(", ".join(could) or "nothing")
"""


@cache
def offered(level: IsolationLevel) -> str:
    """Empty if this machine offers `level`, else the reason; found by trying to break out of it, once."""
    try:
        worker = _Worker(level)
    except (SandboxError, OSError) as error:
        return str(error)
    with tempfile.NamedTemporaryFile("w", suffix=".canary") as canary, contextlib.closing(worker):
        canary.write("free")
        canary.flush()
        os.chmod(canary.name, 0o644)
        try:
            forks = 24 if level == "namespaces" else 0  # elsewhere the limit has slack
            result = worker.run(Job(_ESCAPE, stdin=f"{canary.name}\0{forks}"))
        except SandboxError as error:
            return str(error)
    if not result.ok:
        return f"a first program ended with {result.status}: {result.stderr.strip()[-200:]}"
    could = result.stdout.strip()
    return "" if could == "nothing" or level == "rlimits" else f"a first program could {could}"


def choose(isolation: Isolation) -> IsolationLevel:
    """The level behind the name, or a refusal; never a weaker one."""
    if isolation == "strongest":
        for level in LEVELS[:2]:
            if not offered(level):
                return level
        raise SandboxError(
            f"this machine isolates programs neither by namespaces ({offered('namespaces')}) nor by Landlock "
            f"({offered('landlock')}); isolation = 'rlimits' runs them with limits only, able to read your files."
        )
    if isolation not in LEVELS:
        raise SandboxError(f"isolation is '{isolation}'; {did_you_mean(isolation, ('strongest', *LEVELS))}")
    if reason := offered(isolation):
        raise SandboxError(f"isolation = '{isolation}' is more than this machine offers: {reason}")
    return isolation


_shared: dict[Isolation, Sandbox] = {}
_lock = threading.Lock()


def shared(isolation: Isolation = "strongest") -> Sandbox:
    """The one pool of this process at that level: environments come and go, its workers stay warm."""
    with _lock:
        if isolation not in _shared:
            _shared[isolation] = Sandbox(isolation=isolation)
            atexit.register(_shared[isolation].close)
        return _shared[isolation]

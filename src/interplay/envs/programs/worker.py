"""A warm process that programs are forked from. Standard library only: it runs under the program's own Python.

It is told jobs on its standard input and tells how they ended on its standard output, one JSON object on a line. A
function is imported once, here; each run of it is a fork. A command is started anew each time. The first argument is a
JSON object with what the worker is made from.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import walls  # type: ignore[import-not-found]  # noqa: E402

sys.path[:] = [p for p in sys.path if p != HERE]  # its files are not the program's

LARGEST = 16 << 20  # bytes of a program's output
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def place_of(frames: Sequence[tuple[str, int | None]]) -> str:
    """The innermost line that is not of a library, as file:line."""
    own = [f for f in frames if "site-packages" not in f[0] and "/lib/python" not in f[0] and f[0] != __file__]
    found = own or frames
    return f"{found[-1][0]}:{found[-1][1]}" if found else "an unknown place"


class ForkedRun:
    """A run that goes on: its processes, its folder and what it has written."""

    def __init__(self, number: int, pid: int, folder: str, reads: dict[int, str]) -> None:
        self.number, self.pid, self.folder, self.reads = number, pid, folder, reads
        self.written: dict[str, bytes] = {"out": b"", "err": b"", "result": b""}


class ForkServer:
    def __init__(self, made: dict) -> None:
        self.made = made
        self.jobs: dict[int, ForkedRun] = {}
        self.selector = selectors.DefaultSelector()
        self.function: Callable[..., object] | None = None
        self.folder = tempfile.mkdtemp(prefix="interplay-programs-")

    def prepare(self) -> None:
        made = self.made
        walls.die_with_parent()
        if made["walls"]:
            walls.enter_namespaces(made["network"])
        if made["walls"] and not made["network"]:
            walls.lend_listener(made["port"], made["lender"])
        else:
            os.close(made["lender"])
        os.environ.clear()
        os.environ.update(made["environment"])
        sys.path[:0] = made["path"]
        if made["function"]:
            module, _, name = made["function"].partition(":")
            self.function = getattr(importlib.import_module(module), name)
            gc.collect()
            gc.freeze()  # a collection in a fork would write to, and so copy, all memory that was imported

    def run(self) -> None:
        self.tell({"ready": True})
        self.selector.register(0, selectors.EVENT_READ)
        begun = b""
        while True:
            for key, _ in self.selector.select():
                if key.fd == 0:
                    data = os.read(0, 1 << 20)
                    if not data:
                        self.leave()
                    *lines, begun = (begun + data).split(b"\n")
                    for line in lines:
                        self.told(json.loads(line))
                else:
                    self.heard(key.data, key.fd)

    def told(self, order: dict) -> None:
        if "end" in order:
            job = self.jobs.get(order["end"])
            if job is not None:
                self.kill(job)
        else:
            self.begin(order)

    def begin(self, order: dict) -> None:
        folder = tempfile.mkdtemp(dir=self.folder)
        pipes = {name: os.pipe() for name in ("out", "err", "result")}
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self.child(order, folder, {name: w for name, (_, w) in pipes.items()})
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        reads = {}
        for name, (r, w) in pipes.items():
            os.close(w)
            os.set_blocking(r, False)
            reads[r] = name
        job = self.jobs[order["id"]] = ForkedRun(order["id"], pid, folder, reads)
        for r in reads:
            self.selector.register(r, selectors.EVENT_READ, job)

    def child(self, order: dict, folder: str, pipes: dict[str, int]) -> None:
        """The process that waits for the program, and the program itself."""
        os.setsid()
        walls.die_with_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(pipes["out"], 1)
        os.dup2(pipes["err"], 2)
        for fd in (pipes["out"], pipes["err"]):
            os.close(fd)
        if self.made["walls"]:
            walls.new_processes()
        pid = os.fork()
        if pid:
            os.close(pipes["result"])
            _, status = os.waitpid(pid, 0)
            os._exit(os.waitstatus_to_exitcode(status) & 255)
        walls.die_with_parent()
        os.environ.update(order["environment"])
        os.environ.update(HOME=folder, TMPDIR=folder)
        os.chdir(folder if self.made["walls"] else self.made["cwd"])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self.made["walls"]:
            walls.restrict_files([*walls.readable_by_default(), *self.made["readable"]], [folder])
        if self.made["command"]:
            os.set_inheritable(pipes["result"], False)
            os.execvpe(self.made["command"][0], self.made["command"], os.environ)
        self.call(order["task"], pipes["result"])

    def call(self, task: dict, result: int) -> None:
        try:
            assert self.function is not None
            told = {"result": self.function(task)}
            written = json.dumps(told).encode()
        except BaseException as error:
            frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
            crash = {"kind": type(error).__name__, "words": str(error)[:500], "place": place_of(frames)}
            written = json.dumps({"crash": crash}).encode()
        with os.fdopen(result, "wb") as pipe:
            pipe.write(written)
        sys.stdout.flush()

    def heard(self, job: ForkedRun, fd: int) -> None:
        name = job.reads[fd]
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return
        if data and len(job.written[name]) + len(data) <= LARGEST:
            job.written[name] += data
            return
        if data:
            self.kill(job)
        self.selector.unregister(fd)
        os.close(fd)
        del job.reads[fd]
        if not job.reads:
            self.ended(job)

    def kill(self, job: ForkedRun) -> None:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)

    def ended(self, job: ForkedRun) -> None:
        _, status = os.waitpid(job.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        out, err = (job.written[n].decode("utf-8", "replace") for n in ("out", "err"))
        told = {"id": job.number, "out": out[-LARGEST:], "err": err[-20000:]}
        if job.written["result"]:
            told.update(json.loads(job.written["result"]))
        elif code or not self.made["command"]:
            told["crash"] = self.crash_of(code, err)
        del self.jobs[job.number]
        shutil.rmtree(job.folder, ignore_errors=True)
        self.tell(told)

    def crash_of(self, code: int, err: str) -> dict[str, str]:
        """From a traceback on standard error, where there is one."""
        lines = [line for line in err.strip().splitlines() if line.strip()]
        frames = [(m[1], int(m[2])) for m in _PLACE.finditer(err)]
        kind, _, words = (lines[-1] if lines else "").partition(":")
        if not frames or not re.fullmatch(r"[\w.]+", kind):
            kind, words = f"exit code {code}", lines[-1] if lines else ""
        return {"kind": kind.rpartition(".")[2], "words": words.strip()[:500], "place": place_of(frames)}

    def tell(self, what: dict) -> None:
        data = json.dumps(what).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    def leave(self) -> None:
        for job in list(self.jobs.values()):
            self.kill(job)
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)


if __name__ == "__main__":
    worker = ForkServer(json.loads(sys.argv[1]))
    try:
        worker.prepare()
    except BaseException as error:
        frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        worker.tell({"trouble": f"{type(error).__name__}: {error}", "place": place_of(frames)})
        sys.exit(1)
    worker.run()

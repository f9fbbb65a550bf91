"""A process that is started once and forks a process for each run of a program. It uses the standard library only,
because it runs under the program's own Python.

It reads jobs from its standard input and writes how they ended to its standard output, one JSON object on a line. A
function is imported once, here, and the processes that run it are forks. A command is started again for each run. The
first argument is a JSON object with the settings of the worker.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

HERE = os.path.dirname(os.path.abspath(__file__))
JAIL = os.path.join(os.path.dirname(os.path.dirname(HERE)), "execution", "jail")
sys.path[:0] = [HERE, JAIL]
import cgroup  # type: ignore[import-not-found]  # noqa: E402
import folder as disk  # type: ignore[import-not-found]  # noqa: E402
import forked  # type: ignore[import-not-found]  # noqa: E402
import groups  # type: ignore[import-not-found]  # noqa: E402
import inside  # type: ignore[import-not-found]  # noqa: E402
import processes  # type: ignore[import-not-found]  # noqa: E402
import reports  # type: ignore[import-not-found]  # noqa: E402
import walls  # type: ignore[import-not-found]  # noqa: E402
import watch  # type: ignore[import-not-found]  # noqa: E402

sys.path[:] = [p for p in sys.path if p not in (HERE, JAIL)]  # the program must not import these files
for _name in ("cgroup", "folder", "forked", "groups", "inside", "processes", "reports", "walls", "watch"):
    del sys.modules[_name]  # a program may have such modules too

LARGEST = 16 << 20  # the most bytes of a program's output
IDLE = 0.002  # seconds without anything to do after which another process is made ready for a later run
LOOK = 0.25  # seconds between two checks of the memory and the processes of all runs
MEGABYTE = 1 << 20


class ForkServer:
    def __init__(self, made: dict) -> None:
        self.made = made
        self.jobs: dict[int, forked.ForkedRun] = {}
        self.spares: list[forked.ForkedRun] = []  # they wait for their first run
        self.kept: dict[int, forked.ForkedRun] = {}  # they wait for their next run, by their place
        self.peak = 0  # how many should wait: as many as have run at once
        self.selector = selectors.EpollSelector()
        self.function: Callable[..., object] | None = None
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.watch = watch.RunWatch(made, processes, self.proc)
        self.folder = tempfile.mkdtemp(prefix=made["prefix"], dir=made["under"])
        self.held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self.held, fcntl.LOCK_SH)  # while it is locked, no process removes it
        self.orders, self.out = os.dup(0), os.dup(1)
        os.dup2(2, 1)  # so that what a module prints when it is imported is not read as a report
        self.open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        forked.more_files(self.open_files)
        self.walls = walls.RunWalls(made)
        self.groups = groups.RunGroups(made, cgroup)
        self.lessons = 3  # how many more times modules that runs have imported are imported here

    def prepare(self) -> None:
        made = self.made
        self.walls.enter(self.files())
        if made["walls"]:
            self.home = os.path.join(self.folder, "run")
            os.mkdir(self.home)
        self.limits = [
            (resource.RLIMIT_CORE, (0, 0)),
            (resource.RLIMIT_NOFILE, self.open_files),
            forked.limit(resource.RLIMIT_DATA, int(made["memory_mb"] * MEGABYTE)),
            # For all runs of a process together; `look` limits each of them.
            forked.limit(resource.RLIMIT_CPU, int(made["cpu_seconds"] * made["keep"]) + 2),
        ]
        self.groups.find_place()  # after isolation, because then root may not divide another user's group
        self.walls.open_gateway()
        os.environ.clear()
        os.environ.update(made["environment"])
        sys.path[:0] = made["path"]
        if made["function"]:
            importlib.import_module("encodings.idna")  # otherwise the first connection of every fork would import it
            socket.getaddrinfo("127.0.0.1", made["port"])
            module, _, name = made["function"].partition(":")
            itself = os.getpid()
            self.function = getattr(importlib.import_module(module), name)
            if os.getpid() != itself:  # the module has forked this process when it was imported
                os._exit(0)
            forked.open_standard_streams()
            gc.collect()
            gc.freeze()  # a collection in a fork would write to, and so copy, all memory that was imported

    def run(self) -> None:
        self.tell({"ready": True})
        self.selector.register(self.orders, selectors.EVENT_READ)
        begun = b""
        looked = time.monotonic()
        while True:
            wanted = len(self.spares) + len(self.kept) < self.peak
            ready = self.selector.select(IDLE if wanted else LOOK if self.jobs else None)
            if wanted and not ready:
                self.spares.append(self.fork())
            if self.jobs and time.monotonic() - looked > LOOK:
                self.look()
                looked = time.monotonic()
            for key, _ in ready:
                if key.fd == self.orders:
                    data = os.read(self.orders, 1 << 20)
                    if not data:
                        self.leave()
                    *lines, begun = (begun + data).split(b"\n")
                    for line in lines:
                        self.told(json.loads(line))
                elif key.fd == key.data.order:
                    self.send(key.data)
                elif key.fd in key.data.reads:  # else it was closed for an earlier event of this round
                    self.heard(key.data, key.fd)

    def told(self, order: dict) -> None:
        if "end" in order:
            job = self.jobs.get(order["end"])
        elif "drop" in order:
            job = self.kept.get(order["drop"])
        else:
            self.begin(order)
            return
        if job is not None:
            self.kill(job)

    def begin(self, order: dict) -> None:
        job = self.kept.pop(order["place"], None)
        while job is None or not job.tell(order):  # it has ended while it waited
            job = self.spares.pop() if self.spares else self.fork()
        self.jobs[order["id"]] = job
        if job.unsent:
            self.selector.register(job.order, selectors.EVENT_WRITE, job)
        elif job.last:
            self.close_order(job)
        self.peak = min(max(self.peak, len(self.jobs)), self.made["spares"])

    def send(self, job: forked.ForkedRun) -> None:
        """Send more of an order that the pipe could not take at once."""
        if not job.send():
            self.close_order(job)
        elif not job.unsent:
            self.selector.unregister(job.order)
            if job.last:
                self.close_order(job)

    def close_order(self, job: forked.ForkedRun) -> None:
        if job.order is not None:
            if job.order in self.selector.get_map():
                self.selector.unregister(job.order)
            os.close(job.order)
            job.order = None

    def fork(self) -> forked.ForkedRun:
        """A process that is ready to run the program, and waits to be told the task."""
        folder = self.home if self.made["walls"] else tempfile.mkdtemp(dir=self.folder)
        pipes = {name: os.pipe() for name in ("out", "err", "result")}
        told, order = os.pipe()
        os.set_blocking(order, False)
        group = self.groups.new()
        others = [order, *self.files(), *self.walls.files, *(r for r, _ in pipes.values())]
        for job in self.everyone():
            others += job.files()
        ranges = forked.ranges_of(others)
        pid = self.walls.fork()
        if pid == 0:
            code = 1
            try:
                if group is not None:
                    group.enter()
                for one in self.groups:  # with one of their files, a program could raise its limits or end other runs
                    one.close()
                for first, after in ranges:
                    os.closerange(first, after)
                self.child(told, folder, {name: w for name, (_, w) in pipes.items()})
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(told)
        reads = {}
        for name, (r, w) in pipes.items():
            os.close(w)
            os.set_blocking(r, False)
            reads[r] = name
        job = forked.ForkedRun(pid, folder, reads, order, group)
        for r in reads:
            self.selector.register(r, selectors.EVENT_READ, job)
        return job

    def files(self) -> list[int]:
        """The descriptors of this process itself, which no run may have."""
        return [self.orders, self.out, self.proc, self.held, self.selector.fileno()]

    def everyone(self) -> list[forked.ForkedRun]:
        return [*self.jobs.values(), *self.spares, *self.kept.values()]

    def child(self, told: int, folder: str, pipes: dict[str, int]) -> None:
        """The process of one or more runs, until it is not needed any more."""
        os.setsid()
        walls.lead_family()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, standard in ((null, 0), (pipes["out"], 1), (pipes["err"], 2)):
            os.dup2(fd, standard)
            os.close(fd)
        lend = self.walls.separate(folder)
        os.environ["HOME"] = os.environ["TMPDIR"] = folder
        os.chdir(folder if self.made["walls"] else self.made["cwd"])
        for kind, values in self.limits:
            resource.setrlimit(kind, values)
        self.walls.restrict(folder)
        first = inside.FirstState(self.walls.writable(folder), disk.empty) if self.made["keep"] > 1 else None
        inside.RunProcess(self.made, self.function, pipes["result"], first, reports.place_of).serve(told, lend)

    def heard(self, job: forked.ForkedRun, fd: int) -> None:
        name = job.reads[fd]
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return
        if data and len(job.written[name]) + len(data) <= LARGEST:
            job.written[name] += data
            if name == "result" and job.number is None:  # it may report only while it has a run
                self.kill(job)
            elif name == "result" and not job.last and data.endswith(b"\n"):
                self.returned(job)
            return
        if data:
            what = "returned" if name == "result" else "printed"
            job.excess = f"it {what} more than {LARGEST // MEGABYTE} MB"
            self.kill(job)
        self.selector.unregister(fd)
        os.close(fd)
        del job.reads[fd]
        if not job.reads:
            self.ended(job)
        elif name == "result" and job.written["result"] and not job.excess:
            self.report(job, reports.told_by(job.written["result"]))  # before its processes have ended

    def returned(self, job: forked.ForkedRun) -> None:
        """A run has ended whose process may do another one. It is kept if it says that it is ready after this run, if
        it has written nothing else, and if the run has left no threads and no processes behind."""
        line, _, more = bytes(job.written["result"]).partition(b"\n")
        how = reports.told_by(line)
        self.watch.find_numbers(self.everyone())
        kept = how.get("again") == job.number and not more and self.watch.is_alone(job)
        if kept:
            self.kept[job.place] = job
        self.report(job, how, job.place if kept else None)
        if not kept:
            self.kill(job)

    def look(self) -> None:
        """End runs whose processes use more than they may. The kernel limits the memory of each process. If a run has a
        control group, the kernel also limits what the group counts: all memory, with the files of the run, and all
        threads."""
        self.watch.find_numbers(self.everyone())
        for job in [job for job in self.jobs.values() if job.shown and not job.excess]:
            job.excess = self.watch.excess_of(job)
            if job.excess:
                self.kill(job)

    def kill(self, job: forked.ForkedRun) -> None:
        """End all processes of a run. In a process namespace or a control group these are all that it started; without
        both, they are those that can be found."""
        if job.group is not None:
            job.group.kill(0.0)
        others = {} if self.made["walls"] else processes.family(job.pid, self.proc)
        for pid in [job.pid, *others]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)

    def ended(self, job: forked.ForkedRun) -> None:
        code = 0
        with suppress(ChildProcessError):  # a module may ignore SIGCHLD from its import on; then nobody knows the code
            code = os.waitstatus_to_exitcode(os.waitpid(job.pid, 0)[1]) & 255
        out, err = (job.written[n].decode("utf-8", "replace") for n in ("out", "err"))
        if job.group is not None and job.group.excess() == "memory" and not job.excess:
            job.excess = f"it used more than env.program.memory_mb ({self.made['memory_mb']:g})"
        self.close_order(job)
        if job in self.spares:  # it has ended by itself
            self.spares.remove(job)
        if job in self.kept.values():
            del self.kept[job.place]
        if job.excess:
            self.report(job, {"crash": {"kind": "LimitExceeded", "words": job.excess, "place": "an unknown place"}})
        elif job.written["result"]:
            self.report(job, reports.told_by(job.written["result"]))
        elif code or not self.made["command"]:
            self.report(job, {"crash": reports.crash_of(code, err)})
        else:
            self.report(job, {"out": out[-LARGEST:]})
        if job.group is not None:
            self.groups.remove(job.group)
        if not self.made["walls"]:  # behind walls it was in memory and has ended with its processes
            disk.remove(job.folder)

    def report(self, job: forked.ForkedRun, how: dict, kept: int | None = None) -> None:
        """Tell how a run ended, once, and in which place its process waits for the next one."""
        if job.number is not None:
            del self.jobs[job.number]
            number, job.number = job.number, None
            imported = how.pop("imported", ())
            how.pop("again", None)
            self.tell({"id": number, "how": reports.text_of(how), "kept": kept})
            self.preload(imported)

    def preload(self, names: Sequence[str]) -> None:
        """Import the modules that a run has imported, so that later runs have them already. A run may do what a model
        wrote, so this imports only modules of Python and of packages that the program itself has imported, and no
        `__main__`, which would run a command."""
        known = {name.partition(".")[0] for name in sys.modules} | set(getattr(sys, "stdlib_module_names", ()))
        parts = [name.split(".") for name in names if name not in sys.modules]
        new = [".".join(part) for part in parts if part[0] in known and part[-1] not in ("__main__", "antigravity")]
        if not new or not self.lessons:
            return
        self.lessons -= 1
        for name in new:
            with suppress(Exception, SystemExit):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()
        while self.spares:  # they do not have these modules
            self.close_order(self.spares.pop())

    def tell(self, what: dict) -> None:
        data = json.dumps(what).encode() + b"\n"
        while data:
            data = data[os.write(self.out, data) :]

    def leave(self) -> None:
        for job in self.everyone():
            self.kill(job)
        for group in self.groups:
            group.remove()
        disk.remove(self.folder)
        os._exit(0)


if __name__ == "__main__":
    worker = ForkServer(json.loads(sys.argv[1]))
    try:
        worker.prepare()
    except BaseException as error:
        frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
        worker.tell({"trouble": f"{type(error).__name__}: {error}", "place": reports.place_of(frames)})
        sys.exit(1)
    worker.run()

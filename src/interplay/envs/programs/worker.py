"""A process that is started once and forks a process for each run of a program. It uses the standard library only,
because it runs under the program's own Python.

It reads jobs from its standard input and writes how they ended to its standard output, one JSON object on a line. A
function is imported once, here, and each run of it is a fork. A command is started again for each run. The first
argument is a JSON object with the settings of the worker.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import itertools
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
import processes  # type: ignore[import-not-found]  # noqa: E402
import reports  # type: ignore[import-not-found]  # noqa: E402
import walls  # type: ignore[import-not-found]  # noqa: E402

sys.path[:] = [p for p in sys.path if p not in (HERE, JAIL)]  # the program must not import these files
for _name in ("cgroup", "folder", "forked", "processes", "reports", "walls"):  # a program may have such modules too
    del sys.modules[_name]

LARGEST = 16 << 20  # the most bytes of a program's output
IDLE = 0.002  # seconds without anything to do after which another process is made ready for a later run
LOOK = 0.25  # seconds between two checks of the memory and the processes of all runs
MEGABYTE = 1 << 20
# The most threads of all processes of a run together. Libraries start one for each core.
THREADS = max(1024, 16 * (os.cpu_count() or 1))


class ForkServer:
    def __init__(self, made: dict) -> None:
        self.made = made
        self.jobs: dict[int, forked.ForkedRun] = {}
        self.spares: list[forked.ForkedRun] = []  # they wait for a run
        self.peak = 0  # how many should wait: as many as have run at once
        self.selector = selectors.EpollSelector()
        self.function: Callable[..., object] | None = None
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.folder = tempfile.mkdtemp(prefix=made["prefix"], dir=made["under"])
        self.held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self.held, fcntl.LOCK_SH)  # while it is locked, no process removes it
        self.out = os.dup(1)
        os.dup2(2, 1)  # so that what a module prints when it is imported is not read as a report
        self.open_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        forked.more_files(self.open_files)
        self.place = ""  # the control group in which each run gets its own; empty if there is none
        self.groups: set[cgroup.Cgroup] = set()
        self.lessons = 3  # how many more times modules that runs have imported are imported here

    def prepare(self) -> None:
        made = self.made
        walls.die_with_parent()
        if made["walls"]:
            walls.enter_namespaces(made["network"])
            self.go_on_in_child()
            self.spaces = walls.ProcessNamespaces()
            self.files = walls.FileRules([*walls.readable_by_default(), *made["readable"]])
            self.sockets = None if made["network"] else walls.SocketFilter()
            self.home = os.path.join(self.folder, "run")
            os.mkdir(self.home)
        self.limits = [
            (resource.RLIMIT_CORE, (0, 0)),
            (resource.RLIMIT_NOFILE, self.open_files),
            forked.limit(resource.RLIMIT_DATA, int(made["memory_mb"] * MEGABYTE)),
            forked.limit(resource.RLIMIT_CPU, int(made["cpu_seconds"]) + 1),
        ]
        self.place = cgroup.find_place()[0]  # after isolation, because then root may not divide another user's group
        if made["walls"] and not made["network"]:
            walls.lend_listener(made["port"], made["lender"])
        else:
            os.close(made["lender"])
        os.environ.clear()
        os.environ.update(made["environment"])
        sys.path[:0] = made["path"]
        if made["function"]:
            importlib.import_module("encodings.idna")  # otherwise the first connection of every fork would import it
            socket.getaddrinfo("127.0.0.1", made["port"])
            module, _, name = made["function"].partition(":")
            self.function = getattr(importlib.import_module(module), name)
            gc.collect()
            gc.freeze()  # a collection in a fork would write to, and so copy, all memory that was imported

    def go_on_in_child(self) -> None:
        """Go on in a child, which is the first process of a namespace of its own. Only a process of such a namespace
        can fork runs into further ones without another process for each. This process waits until the child ends."""
        pid = os.fork()
        if pid:
            for fd in (0, 1, self.out, self.proc, self.held, self.selector.fileno(), self.made["lender"]):
                os.close(fd)
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)
        walls.die_with_parent()

    def run(self) -> None:
        self.tell({"ready": True})
        self.selector.register(0, selectors.EVENT_READ)
        begun = b""
        looked = time.monotonic()
        while True:
            wanted = len(self.spares) < self.peak
            ready = self.selector.select(IDLE if wanted else LOOK if self.jobs else None)
            if wanted and not ready:
                self.spares.append(self.fork())
            if self.jobs and time.monotonic() - looked > LOOK:
                self.look()
                looked = time.monotonic()
            for key, _ in ready:
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
        while True:
            job = self.spares.pop() if self.spares else self.fork()
            try:
                with os.fdopen(job.order, "wb") as pipe:
                    pipe.write(json.dumps(order).encode())
                break
            except BrokenPipeError:  # it has ended while it waited
                continue
        job.number = order["id"]
        self.jobs[order["id"]] = job
        self.peak = min(max(self.peak, len(self.jobs)), self.made["spares"])

    def fork(self) -> forked.ForkedRun:
        """A process that is ready to run the program, and waits to be told the task."""
        walled = self.made["walls"]
        folder = self.home if walled else tempfile.mkdtemp(dir=self.folder)
        pipes = {name: os.pipe() for name in ("out", "err", "result")}
        told, order = os.pipe()
        group = self.new_group()
        others = [order, self.out, self.proc, self.held, self.selector.fileno(), *(r for r, _ in pipes.values())]
        others += [self.spaces.own] if walled else []
        for job in (*self.jobs.values(), *self.spares):
            others += job.reads if job.number is not None else [*job.reads, job.order]
        ranges = forked.ranges_of(others)
        pid = self.spaces.fork() if walled else os.fork()
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

    def new_group(self) -> cgroup.Cgroup | None:
        """A control group for one run, with its limits. The folder of an isolated run is in memory too. If no group can
        be made, runs continue without one, and only `look` limits them."""
        if not self.place:
            return None
        in_memory = self.made["disk_mb"] if self.made["walls"] else 0
        try:
            group = cgroup.make_cgroup(self.place)
            self.groups.add(group)
            group.limit(self.made["memory_mb"] + in_memory, self.made["processes"] + THREADS)
        except OSError as error:
            sys.stderr.write(f"env.program: no control group could be made ({error}); limits are less exact.\n")
            self.place = ""
            return None
        return group

    def child(self, told: int, folder: str, pipes: dict[str, int]) -> None:
        """The process of a run, until the run has ended."""
        os.setsid()
        walls.die_with_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, standard in ((null, 0), (pipes["out"], 1), (pipes["err"], 2)):
            os.dup2(fd, standard)
            os.close(fd)
        if self.made["walls"]:
            walls.limit_folder(folder, self.made["disk_mb"])
        os.environ["HOME"] = os.environ["TMPDIR"] = folder
        os.chdir(folder if self.made["walls"] else self.made["cwd"])
        for kind, values in self.limits:
            resource.setrlimit(kind, values)
        if self.made["walls"]:
            self.files.restrict(folder)
            if self.sockets is not None:
                self.sockets.restrict()
        with os.fdopen(told, "rb") as pipe:
            data = pipe.read()
        if not data:  # it is not needed any more
            return
        order = json.loads(data)
        for name, value in order["environment"].items():  # `update` is slower in a new process: it touches more memory
            os.environ[name] = value
        if self.made["command"]:
            os.set_inheritable(pipes["result"], False)
            os.execvpe(self.made["command"][0], self.made["command"], os.environ)
        self.call(order["task"], pipes["result"])

    def call(self, task: dict, result: int) -> None:
        before = len(sys.modules)
        try:
            assert self.function is not None
            told = {"result": self.function(task)}
            # The newest modules are last. To look at the others would copy the memory of all their names.
            late = list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - before)))
            written = json.dumps({**told, "imported": late[::-1]}).encode()
        except BaseException as error:
            frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
            crash = {"kind": type(error).__name__, "words": str(error)[:500], "place": reports.place_of(frames)}
            written = json.dumps({"crash": crash}).encode()
        with os.fdopen(result, "wb") as pipe:
            pipe.write(written)
        sys.stdout.flush()

    def heard(self, job: forked.ForkedRun, fd: int) -> None:
        name = job.reads[fd]
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return
        if data and len(job.written[name]) + len(data) <= LARGEST:
            job.written[name] += data
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

    def look(self) -> None:
        """End runs whose processes together use more than they may. The kernel limits the memory of each process. If a
        run has a control group, the kernel also limits what the group counts: all memory, with the files of the run,
        and all threads."""
        most, count = self.made["memory_mb"], self.made["processes"]
        self.find_numbers()
        for job in [job for job in self.jobs.values() if job.shown]:
            members = processes.family(job.shown, self.proc, itself=True)
            if len(members) > count:
                job.excess = f"it used more than env.program.processes ({count})"
            elif sum(processes.resident(pid, self.proc) for pid in members) > most:  # quick: shared pages count often
                used = sum(processes.memory_of(tasks, self.proc) for tasks in members.values())
                job.excess = f"it used more than env.program.memory_mb ({most:g})" if used > most else ""
            if job.excess:
                self.kill(job)

    def find_numbers(self) -> None:
        """Find the numbers that /proc shows for new runs. If this process is in a namespace of its own, they differ
        from the numbers that it sees itself."""
        new = {job.pid: job for job in self.jobs.values() if not job.shown}
        found = {pid: pid for pid in new}
        if new and self.made["walls"]:
            found = processes.new_children({job.shown for job in self.jobs.values()}, self.proc)
        for pid, job in new.items():
            job.shown = found.get(pid, 0)

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
        _, status, used = os.wait4(job.pid, 0)
        code = os.waitstatus_to_exitcode(status) & 255
        out, err = (job.written[n].decode("utf-8", "replace") for n in ("out", "err"))
        if used.ru_utime + used.ru_stime > self.made["cpu_seconds"]:
            err += f"\nit used more than env.program.cpu_seconds ({self.made['cpu_seconds']:g})\n"
        if job.group is not None and job.group.excess() == "memory" and not job.excess:
            job.excess = f"it used more than env.program.memory_mb ({self.made['memory_mb']:g})"
        if job in self.spares:  # it has ended by itself
            self.spares.remove(job)
            os.close(job.order)
        elif job.excess:
            self.report(job, {"crash": {"kind": "LimitExceeded", "words": job.excess, "place": "an unknown place"}})
        elif job.written["result"]:
            self.report(job, reports.told_by(job.written["result"]))
        elif code or not self.made["command"]:
            self.report(job, {"crash": reports.crash_of(code, err)})
        else:
            self.report(job, {"out": out[-LARGEST:]})
        if job.group is not None:
            job.group.remove()
            self.groups.remove(job.group)
        if not self.made["walls"]:  # behind walls it was in memory and has ended with its processes
            disk.remove(job.folder)

    def report(self, job: forked.ForkedRun, how: dict) -> None:
        """Tell how a run ended, once."""
        if not job.reported and job.number is not None:
            job.reported = True
            imported = how.pop("imported", ())
            self.tell({"id": job.number, "how": reports.text_of(how)})
            del self.jobs[job.number]
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
            spare = self.spares.pop()
            spare.reported = True
            os.close(spare.order)

    def tell(self, what: dict) -> None:
        data = json.dumps(what).encode() + b"\n"
        while data:
            data = data[os.write(self.out, data) :]

    def leave(self) -> None:
        for job in (*self.jobs.values(), *self.spares):
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

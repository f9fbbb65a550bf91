"""What runs on the far side of the sandbox: a warm interpreter that gives every program a jail of its own.

Standard library only: started by `sandbox.py` in an interpreter without site-packages. Four processes, each of which
knows only what it must:

    zygote       imports once, shuts itself in, then forks a supervisor for each job; never sees a job's content
    supervisor   reads the job, makes fresh namespaces, feeds stdin, reads output, watches clock and memory, reports
    init         process 1 of the namespaces: mounts the job's folder, starts the program, says how it ended
    program      under limits, without capabilities, behind a system-call filter; owns descriptors 0, 1, 2 alone

The program cannot forge a result: it holds no descriptor of the channel, may not trace anyone, and `init` cannot be
signalled from inside. Its standard input is read after it was forked, so what is sent there is not in its memory.
When init ends, the kernel ends every process of the job.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time

from interplay.rewards.walls import (
    DAC_READ_SEARCH,
    LIBC,
    MS_NODEV,
    MS_NOSUID,
    NEWNS,
    NEWPID,
    NOBODY,
    SET_PDEATHSIG,
    SET_SUBREAPER,
    JailError,
    become_nobody,
    call,
    fence,
    fork,
    is_root,
    landlock_version,
    mount,
    restrict,
    seccomp,
    shut_in,
    system_paths,
)

WATCH = 0.05  # seconds between looks at memory, processes and disk
PRIVATE = "/tmp"  # of the private root: where a job's folder is mounted
SLACK = 64  # processes this user may start elsewhere meanwhile, where the kernel counts them all together
PYTHONS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # signals that an interpreter does not leave as they are
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
# What most programs import, so that they need not.
WARM = """
    abc array ast bisect builtins cmath collections copy dataclasses datetime decimal enum fractions functools heapq
    inspect itertools linecache math numbers operator queue random re statistics string threading time traceback
    types typing
"""


# -- the program ------------------------------------------------------------------------------------------------------


def run_source(source: bytes) -> int:
    """`python main.py`, without starting an interpreter: the exit code."""
    import atexit
    import builtins
    import linecache
    import random
    import threading
    import traceback
    import types

    main = types.ModuleType("__main__")
    main.__dict__.update(__file__="main.py", __builtins__=builtins)
    for name in [n for n in sys.modules if n.partition(".")[0] == "interplay"]:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.argv[:], sys.path[0:0] = ["main.py"], [""]
    random.seed(0)  # with the fixed hash seed: the same program does the same again
    streams = [io.FileIO(fd, "r" if fd == 0 else "w", closefd=False) for fd in range(3)]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(streams[0]), encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(streams[1]), encoding="utf-8", errors="surrogateescape")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(streams[2]), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
        signal.signal(number, {signal.SIGINT: signal.default_int_handler}.get(number, signal.SIG_IGN))
    code = 0
    try:
        text = source.decode("utf-8")
        linecache.cache["main.py"] = (len(text), None, text.splitlines(keepends=True), "main.py")
        exec(compile(text, "main.py", "exec", dont_inherit=True), main.__dict__)
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 0 if leave.code is None else 1
        if code == 1 and not isinstance(leave.code, int):
            sys.stderr.write(f"{leave.code}\n")
    except BaseException as error:
        code = 1
        trace = error.__traceback__ and error.__traceback__.tb_next
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, trace)
        else:
            sys.excepthook(type(error), error, trace)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code & 0xFF


def become_program(
    job: Job, level: str, folder: str, readable: list[str], pipes: tuple[int, int, int], told: int
) -> None:
    """Never returns. `told` hears what went wrong before the program began; its closing says that it has begun."""
    code = 1
    try:
        for fd, pipe in enumerate(pipes):
            os.dup2(pipe, fd)
        os.dup2(told, 3)
        os.closerange(4, 1 << 16)
        os.set_inheritable(3, False)
        os.setsid()
        for number in PYTHONS:
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(ENVIRONMENT, HOME=folder, TMPDIR=folder)
        os.umask(0o022)
        gc.enable()
        restrict(level, job.limits, folder, readable, job.running)
        if job.argv:
            try:
                os.execvpe(job.argv[0], job.argv, os.environ)
            except OSError as error:
                raise JailError(f"the program '{job.argv[0]}' cannot be started: {error.strerror}") from None
        os.close(3)
        code = run_source(job.source)
    except JailError as error:
        os.write(3, str(error).encode())
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(3, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


# -- init, and the supervisor -----------------------------------------------------------------------------------------


class Job:
    """What the supervisor read from the channel, all but standard input."""

    def __init__(self, channel: socket.socket) -> None:
        header = json.loads(receive(channel, struct.unpack("I", receive(channel, 4))[0]))
        self.limits: dict[str, float] = header["limits"]
        self.argv: list[str] = header["argv"]
        self.source = receive(channel, header["source"])
        self.files = {name: receive(channel, size) for name, size in header["files"]}
        self.stdin_size: int = header["stdin"]
        self.running = 0  # processes that the kernel counts besides the program's own


def receive(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(1 << 16, size - len(parts)))
        if not part:
            os._exit(0)  # nobody is left who wants to know
        parts += part
    return bytes(parts)


def fill(folder: str, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def run_init(job: Job, level: str, folder: str, readable: list[str], pipes: tuple[int, int, int], report: int) -> None:
    """Never returns; the report is how the program ended, or what went wrong before it began."""
    answer: dict[str, object]
    try:
        LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if level == "namespaces":
            size = int(job.limits["files_mb"] * 1024)
            mount(
                "tmpfs", PRIVATE, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size}k,nr_inodes={1024 + size // 4},mode=700"
            )
            folder = f"{PRIVATE}/job"
            os.mkdir(folder)
        try:
            fill(folder, job.files)
        except OSError as error:
            raise JailError(
                f"the job's files cannot be written: {error.strerror}; set limits.files_mb higher"
            ) from None
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            become_program(job, level, folder, readable, pipes, told)
        os.close(told)
        for pipe in pipes:
            os.close(pipe)
        trouble = os.read(heard, 4096)
        while True:
            pid, status, usage = os.wait3(0)
            if pid == child:
                break
        if trouble:
            raise JailError(trouble.decode(errors="replace"))
        full = level == "namespaces" and os.statvfs(folder).f_bavail * 4 < 64
        answer = {"status": status, "full": full, "cpu": usage.ru_utime + usage.ru_stime}
    except (JailError, OSError) as error:
        answer = {"trouble": str(error)}
    os.write(report, json.dumps(answer).encode())
    os._exit(0)


def family(pid: int, proc: int) -> list[int]:
    """The descendants of a process, as far as they can be seen."""
    found, ahead = [], [pid]
    while ahead:
        one = ahead.pop()
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(fd := os.open(f"{one}/task", os.O_RDONLY, dir_fd=proc)):
                handle = os.open(f"{task}/children", os.O_RDONLY, dir_fd=fd)
                children = [int(n) for n in os.read(handle, 1 << 16).split()]
                os.close(handle)
                found += children
                ahead += children
            os.close(fd)
    return found


def memory_of(pid: int, proc: int) -> float:
    """Megabytes, shared pages divided among their owners where the kernel tells."""
    for name in ("smaps_rollup", "statm"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fd = os.open(f"{pid}/{name}", os.O_RDONLY, dir_fd=proc)
            text = os.read(fd, 4096).decode()
            os.close(fd)
            if name == "statm":
                return int(text.split()[1]) * 4 / 1024
            return int(text.split("Pss:")[1].split()[0]) / 1024
    return 0.0


def size_of(folder: str) -> float:
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(at, name)).st_blocks * 512
    return total / (1 << 20)


class Supervisor:
    """One job, from the channel to the report."""

    def __init__(self, channel: socket.socket, level: str, folder: str, readable: list[str], proc: int) -> None:
        self.channel, self.level, self.folder, self.readable, self.proc = channel, level, folder, readable, proc
        self.job = Job(channel)
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
        if sum(memory_of(pid, self.proc) for pid in members) > limits["memory_mb"]:
            self.stop(init, "memory")
        elif len(members) > limits["processes"]:
            self.stop(init, "processes")
        elif self.level != "namespaces" and size_of(self.job_folder) > limits["files_mb"]:
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


def remove(folder: str) -> None:
    """Also what its owner made unreadable."""

    def again(function: object, path: str, error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            (os.rmdir if os.path.isdir(path) and not os.path.islink(path) else os.unlink)(path)

    for _ in range(8):
        shutil.rmtree(folder, onerror=again)
        if not os.path.lexists(folder):
            return


def kernel() -> tuple[int, ...]:
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2])


def processes_of(uid: int, proc: int) -> int:
    """Tasks that already count against this user's limit."""
    count = 0
    for name in os.listdir(proc):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=proc).st_uid == uid:
                    count += os.stat(f"{name}/task", dir_fd=proc).st_nlink - 2
    return count


# -- the zygote -------------------------------------------------------------------------------------------------------


def send(channel: socket.socket, answer: dict[str, object]) -> None:
    parts = [bytes(answer.pop(name, b"")) for name in ("stdout", "stderr")]  # type: ignore[call-overload]
    head = json.dumps({**answer, "sizes": [len(p) for p in parts]}).encode()
    channel.sendall(struct.pack("I", len(head)) + head + parts[0] + parts[1])


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


def main(fd: int, level: str, folder: str) -> None:
    channel = socket.socket(fileno=fd)
    for name in WARM.split():
        __import__(name)
    for number in signal.valid_signals() - {*PYTHONS, signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # whatever we inherited
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    readable = system_paths()
    try:
        if level == "namespaces":
            seccomp(True, True)
            shut_in(folder, proc)
        else:
            if is_root():
                own = 1_900_000_000 + os.getpid()  # nobody's, so that limits by user count this worker's programs alone
                uid = own if is_root(own) else NOBODY
                os.chown(folder, uid, NOBODY)
                become_nobody(uid, keep=DAC_READ_SEARCH)
            if level == "landlock":
                if not landlock_version():
                    raise JailError("this kernel has no Landlock, or it is not switched on")
                fence(landlock_version(), readable, folder)
    except (JailError, OSError) as error:
        send(channel, {"trouble": str(error)})
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    send(channel, {})
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        poll.poll()
        if not channel.recv(1, socket.MSG_PEEK):
            return
        child = fork()
        if child == 0:
            supervise(channel, level, folder, readable, proc)
        if os.waitpid(child, 0)[1] != 0:
            return

"""The program: a forked process that gives up what it has, then runs what it was given."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys

from interplay.execution.jail.job import ReceivedJob
from interplay.execution.jail.walls import JailError, restrict

PYTHONS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # signals that an interpreter does not leave as they are
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


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
    job: ReceivedJob, level: str, folder: str, readable: list[str], pipes: tuple[int, int, int], told: int
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

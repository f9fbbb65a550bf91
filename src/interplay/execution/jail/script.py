"""Runs Python source as `python main.py` would, without starting an interpreter."""

from __future__ import annotations

import atexit
import builtins
import io
import linecache
import random
import signal
import sys
import threading
import traceback
import types

STREAMS = ("stdin", "stdout", "stderr")


def become_script(name: str) -> types.ModuleType:
    """Make this process look like a new interpreter that runs the file `name`; return its `__main__` module."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=name, __builtins__=builtins)
    for module in [n for n in sys.modules if n.partition(".")[0] == "interplay"]:
        del sys.modules[module]
    sys.modules["__main__"] = main
    sys.argv[:], sys.path[0:0] = [name], [""]
    random.seed(0)  # together with the fixed hash seed, this makes a program repeatable
    files = [io.FileIO(fd, "r" if fd == 0 else "w", closefd=False) for fd in range(3)]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(files[0]), encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(files[1]), encoding="utf-8", errors="surrogateescape")
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(files[2]), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    vars(sys).update({f"__{stream}__": getattr(sys, stream) for stream in STREAMS})
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return main


def run_source(source: bytes) -> int:
    """Run the source and return the exit code."""
    main = become_script("main.py")
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

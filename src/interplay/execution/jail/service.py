"""A service: an isolated process that answers questions, each in a fork of its own.

A question is text that a model may have written, for a library that parses it: SQLite, DuckDB, sympy. The fork sets its
limits, gives up everything except reading (`only_reading`), and calls the module's `answer(text)` in the folder with
the files that the question is about. It cannot change anything that later questions use. Files are kept by name, so
that each is sent only once.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from interplay.execution.jail.job import ReceivedQuestion, send
from interplay.execution.jail.seccomp import apply_filter, only_reading
from interplay.execution.jail.syscall import fork
from interplay.execution.jail.walls import MEGABYTE, set_limit

AnswerFunction = Callable[[bytes], bytes]
KEPT = 1 << 30  # total bytes of files that are kept
NO_MEMORY = 77  # the exit code if memory ran out
FAILED = 78
MISSING = 79  # used like an exit code: the question names a file that was not sent


def serve(module: str, walls: bool) -> NoReturn:
    """Standard input is the channel to the supervisor. `walls` is false at the level without isolation."""
    answer: AnswerFunction = importlib.import_module(module).answer
    channel = socket.socket(fileno=0)
    files: dict[str, int] = {}  # sizes by name, the most recently used last
    while True:
        try:
            question = ReceivedQuestion(channel)
        except EOFError:
            os._exit(0)
        if any(name not in files and name not in question.files for name in question.needs):
            send(channel, {"status": "error", "code": MISSING, "seconds": 0.0})
            continue
        _keep(files, question)
        send(channel, _answered(question, answer, walls))


def _keep(files: dict[str, int], question: ReceivedQuestion) -> None:
    for name in question.needs:
        content = question.files.get(name)
        size = files.pop(name) if content is None else len(content)
        while files and sum(files.values()) + size > KEPT:
            oldest = next(iter(files))
            os.unlink(oldest)
            del files[oldest]
        if content is not None:
            with open(name, "wb") as file:
                file.write(content)
        files[name] = size


def _answered(question: ReceivedQuestion, answer: AnswerFunction, walls: bool) -> dict[str, Any]:
    began = time.monotonic()
    heard, told = os.pipe()
    child = fork()
    if child == 0:
        _become_answer(question, answer, told, walls and not question.ours)
    os.close(told)
    said, room, status = bytearray(), int(question.limits["output_kb"] * 1024), ""
    while part := os.read(heard, 1 << 16):
        said += part
        if len(said) > room:
            status = "output"
            os.kill(child, signal.SIGKILL)
            break
    os.close(heard)
    _, ended, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(ended)
    late = code == -signal.SIGKILL and usage.ru_utime + usage.ru_stime >= question.limits["cpu_seconds"]
    if not status:
        named = {0: "ok", FAILED: "error", NO_MEMORY: "memory", -signal.SIGXCPU: "timeout"}
        status = "timeout" if late else named.get(code, "killed")
    return {"status": status, "code": code, "seconds": time.monotonic() - began, "stdout": said[:room]}


def _become_answer(question: ReceivedQuestion, answer: AnswerFunction, told: int, reading: bool) -> NoReturn:
    code = FAILED
    try:
        os.dup2(told, 3)  # not standard output, because libraries print there
        os.closerange(4, 256)
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        seconds = max(1, int(-(-question.limits["cpu_seconds"] // 1)))
        set_limit(resource.RLIMIT_CPU, seconds, seconds + 1)
        set_limit(resource.RLIMIT_AS, int(question.limits["memory_mb"] * MEGABYTE))
        if reading:
            apply_filter(only_reading())
        said = memoryview(answer(question.text))
        while said:
            said = said[os.write(3, said) :]
        code = 0
    except MemoryError:
        code = NO_MEMORY
    except BaseException as error:
        os.write(3, f"{type(error).__name__}: {error}"[:1000].encode(errors="replace"))
    finally:
        os._exit(code)

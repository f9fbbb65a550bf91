"""Calls the functions of a program from a separate process, the referee. Only the referee has the tests and reports.

Two messages come on standard input: the program with the name of its function, and then the tests. Between them the
referee forks the nursery, a process that starts the program on request. So neither the nursery nor the program ever has
the tests in its memory. Referee and program only exchange plain values over a pair of pipes (`values.py`). The report
goes to standard output.

Every test has its own time limit. A program that exceeds it is ended, and started again for the next test. After
`STARTS` starts, the remaining tests count as failed.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import hashlib
import json
import os
import random
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from interplay.execution.jail.script import become_script
from interplay.execution.jail.seccomp import apply_filter, only_itself
from interplay.execution.jail.syscall import JailError
from interplay.execution.jail.values import exactly, get, pack, put, unpack

STARTS = 4  # how often the program may be started
LOOK = 0.1  # seconds between two checks of its processor time
WRONG, UNCALLED = "wrong answer", "it does not call the program"


class Slow(BaseException):
    """A test exceeded its time limit. It is a BaseException, so an `except Exception` in a test does not catch it."""


class RemoteObject:
    """Stands for a result of the program that cannot be copied. It equals nothing, and it is neither true nor false."""

    def __init__(self, program: Program, number: int | str) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __setattr__(self, name: str, value: Any) -> None:
        self._program.ask("set", self._number, (name, value))

    def __call__(self, *args: Any) -> Any:
        return self._program.ask("call", self._number, args)

    def __getattr__(self, name: str) -> Any:
        return self._program.ask("get", self._number, name)

    def __iter__(self) -> Any:
        return self._program.ask("iter", self._number, None)

    def __bool__(self) -> bool:
        raise TypeError("not a plain value")

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _number_of(x: Any) -> int:
    if type(x) is RemoteObject:
        number: int = x._number
        return number
    raise TypeError("cannot be passed to the program")


class Program:
    """The process that runs the program, as the referee sees it."""

    def __init__(self, source: str, entry: str) -> None:
        # Pipes for all possible starts are made now, because later the nursery cannot be given any.
        self.pipes = [(*os.pipe(), *os.pipe()) for _ in range(STARTS)]
        heard, self.told = os.pipe()
        self.heard, told = os.pipe()
        if os.fork() == 0:
            _become_nursery(source, entry, self.pipes, heard, told)
        for fd in (heard, told, *(fd for asked, _, _, answer in self.pipes for fd in (asked, answer))):
            os.close(fd)
        self.starts = 0
        self.lost = True  # when one answer could not be read, later ones cannot be read either

    def start(self, seconds: float, wall: float) -> list[Any]:
        """What the program reports: whether it could be run, whether it defines its function, and what went wrong."""
        _, self.asked, self.answered, _ = self.pipes[self.starts]
        os.set_blocking(self.asked, False)
        self.starts += 1
        os.write(self.told, b"x")
        self.pid = int.from_bytes(exactly(self.heard, 4), "little")
        self.lost = False
        self.begin(seconds, wall)
        try:
            said = get(self.answered, self._ready)
            if not isinstance(said, list) or [type(x) for x in said] != [bool, bool, str]:
                raise EOFError
            return said
        except (OSError, EOFError, ValueError):
            self.lost = True
            return [False, False, "it ended before it could be called"]

    def begin(self, seconds: float, wall: float) -> None:
        """Begin a test with this much processor time and this much wall-clock time."""
        self.calls = hashlib.sha256()  # a hash of the program's answers
        self.answers, self.raised = 0, False
        self.limits = self._used() + seconds, time.monotonic() + wall

    def end(self) -> None:
        """End the program if the system allows it. A process that cannot be ended here ends with the job."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def _used(self) -> float:
        """The processor time of the program's process."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # the clock id that clock_getcpuclockid(3) computes
        except OSError:
            return 0.0

    def _ready(self, fd: int) -> None:
        reads, writes = ([fd], []) if fd == self.answered else ([], [fd])
        while not any(select.select(reads, writes, [], LOOK)):
            if self._used() > self.limits[0] or time.monotonic() > self.limits[1]:
                self.lost = True
                raise Slow("it took too long")

    def ask(self, what: str, target: int | str, rest: Any) -> Any:
        if self.lost:
            raise EOFError("it gave no answer")
        try:
            put(self.asked, [what, target, rest if what == "get" else pack(rest, _number_of)], self._ready)
            verdict, got, more = get(self.answered, self._ready)
            if verdict not in ("ok", "raised") or not isinstance(more, list | str):
                raise EOFError
        except (OSError, EOFError, ValueError):
            self.lost = True
            raise EOFError("it gave no answer") from None
        self.answers += 1
        self.raised |= verdict == "raised"
        unnamed = type(got) is dict and "h" in got
        self.calls.update(f"{verdict} {'?' if unnamed or verdict == 'raised' else json.dumps(got)}\n".encode())
        if verdict == "raised":
            known = [getattr(builtins, n, None) for n in got]
            kind = next((k for k in known if isinstance(k, type) and issubclass(k, Exception)), RuntimeError)
            raise (RuntimeError if kind is AssertionError else kind)(more)
        if what == "call":
            _copy_changes(rest, [unpack(x, self.remote) for x in more])
        return unpack(got, self.remote)

    def remote(self, number: int | str) -> RemoteObject:
        return RemoteObject(self, number)


def _copy_changes(ours: tuple[Any, ...], theirs: list[Any]) -> None:
    """A function may change its arguments, so apply the same changes to the arguments of the test."""
    for mine, changed in zip(ours, theirs, strict=False):
        if type(mine) is list and type(changed) is list:
            mine[:] = changed
        elif type(mine) is type(changed) and type(mine) in (dict, set):
            mine.clear()
            mine.update(changed)


# -- the nursery and the program --------------------------------------------------------------------------------------


def _become_nursery(
    source: str, entry: str, pipes: Sequence[tuple[int, int, int, int]], heard: int, told: int
) -> NoReturn:
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for asked, _, _, answer in pipes:
            exactly(heard, 1)
            child = os.fork()
            if child == 0:
                _become_program(source, entry, asked, answer)
            os.write(told, child.to_bytes(4, "little"))
            os.close(answer)  # so that the referee notices when the program ends
    finally:
        os._exit(0)


def _become_program(source: str, entry: str, asked: int, answer: int) -> NoReturn:
    try:
        for fd in {*range(3, 256)} - {asked, answer}:
            with contextlib.suppress(OSError):
                os.close(fd)
        with contextlib.suppress(JailError):  # the weakest isolation level has no filter
            apply_filter(only_itself())
        become_script("solution.py")
        _serve(source, entry, asked, answer)
    finally:
        os._exit(0)


def _serve(source: str, entry: str, asked: int, answer: int) -> None:
    keep: list[Any] = []

    def number(x: Any) -> int:
        keep.append(x)
        return len(keep) - 1

    space: dict[str, Any] = {"__name__": "solution"}
    try:
        exec(compile(source, "solution.py", "exec", dont_inherit=True), space)
        put(answer, [True, entry in space or not entry, ""])
    except BaseException as error:
        put(answer, [not isinstance(error, SyntaxError), False, f"{type(error).__name__}: {error}"[:200]])
        return
    while True:
        what, target, rest = get(asked)
        try:
            thing = space[target] if isinstance(target, str) else keep[target]
            args: tuple[Any, ...] = ()
            got: Any = None
            if what == "call":
                args = unpack(rest, keep.__getitem__)
                got = thing(*args)
            elif what == "set":
                setattr(thing, *unpack(rest, keep.__getitem__))
            else:
                got = iter(thing) if what == "iter" else getattr(thing, rest)
            put(answer, ["ok", pack(got, number), [pack(a, number) for a in args]])
        except Exception as error:
            names = [c.__name__ for c in type(error).__mro__]
            put(answer, ["raised", names, str(error)[:200]])


# -- the tests --------------------------------------------------------------------------------------------------------


def main() -> int:
    sys.set_int_max_str_digits(0)
    random.seed(0)
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    first = get(0)
    program = Program(first["program"], first["entry"])
    report = Trials(program, first["entry"], get(0)).report()
    sys.stdout.write(json.dumps(report))
    sys.stdout.flush()
    return 0


class Trials:
    """`wanted` holds the setup, the tests, `seconds` of processor time and `wall` seconds for each test, and `total`
    for all of them."""

    def __init__(self, program: Program, entry: str, wanted: dict[str, Any]) -> None:
        self.program, self.entry, self.wanted = program, entry, wanted
        self.tests: list[str] = wanted["tests"]
        self.deadline = time.monotonic() + wanted["total"]
        self.built = self.loaded = False
        self.trouble = ""
        self.space: dict[str, Any] = {}

    def report(self) -> dict[str, Any]:
        passed: list[bool] = []
        answers: list[str] = []  # a digest of the program's answers in each test; empty if it gave no answer
        errors = 0
        raised = False
        self._start()
        for n, test in enumerate(self.tests) if self.loaded else ():
            done, why = self._run(n, test)
            passed.append(done)
            answers.append(self.program.calls.hexdigest() if self.program.answers else "")
            errors += why not in ("", WRONG, UNCALLED)
            raised |= self.program.raised
            self.trouble = self.trouble or (f"test {n + 1}: {why}" if why else "")
        said = {"built": self.built, "loaded": self.loaded, "trouble": self.trouble, "passed": passed}
        return {**said, "errors": errors, "answers": answers, "raised": raised}

    def _start(self) -> None:
        try:
            built, loaded, why = self.program.start(self.wanted["seconds"], self.wanted["wall"])
        except Slow as error:
            built, loaded, why = True, False, str(error)
        if self.program.starts == 1:
            self.built, self.loaded = built, loaded
        if not loaded:
            self.trouble = self.trouble or why or f"it does not define {self.entry}"
            return
        setup, names = known(self.tests, self.entry, self.wanted["setup"])
        self.space = {"__name__": "referee", **{name: self.program.remote(name) for name in names}}
        try:
            exec(compile(setup, "setup", "exec", dont_inherit=True), self.space)
        except (Exception, Slow) as error:
            why = f"the tests cannot be set up with it: {type(error).__name__}: {error}"[:200]
            self.trouble = self.trouble or why
        if self.entry:
            self.space[self.entry] = self.space["candidate"] = self.program.remote(self.entry)

    def _run(self, n: int, test: str) -> tuple[bool, str]:
        """Whether the test passed and, if not, why."""
        left = self.deadline - time.monotonic()
        if self.program.lost and self.program.starts < STARTS and left > 0:
            self._start()
        self.program.begin(self.wanted["seconds"], min(self.wanted["wall"], left))
        why = ""
        try:
            exec(compile(test, f"test {n + 1}", "exec", dont_inherit=True), self.space)
        except AssertionError:
            why = WRONG
        except BaseException as error:
            why = str(error) if isinstance(error, Slow) else f"{type(error).__name__}: {error}"[:200]
        if self.program.lost:  # even if the test caught the exception
            self.program.end()
            return False, why or "it gave no answer"
        return (False, why) if why else (True, "") if self.program.answers else (False, UNCALLED)


def known(tests: Sequence[str], entry: str, setup: str) -> tuple[str, list[str]]:
    """The setup, with imports that the tests assume, and the names that only the program can define."""
    nodes: list[ast.AST] = []
    for text in (setup, *tests):
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # the test itself will fail
            nodes += ast.walk(ast.parse(text))
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    stored |= {a.arg for n in nodes if isinstance(n, ast.arguments) for a in (*n.args, *n.kwonlyargs)}
    stored |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            stored |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    missing = {n for n in used if n not in stored and not hasattr(builtins, n)} - {"candidate"}
    imports = sorted(n for n in missing if n in sys.stdlib_module_names and n != entry)
    names = sorted((missing - set(imports)) | ({entry} if entry else set()))
    return "".join(f"import {n}\n" for n in imports) + setup, names

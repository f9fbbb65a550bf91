"""Calls the functions of a program from a process of its own: the referee holds the tests and alone reports.

Two messages come on standard input: the program with the name of its function, and then the tests. In between the
referee forks the process that runs the program, which therefore never has the tests in its memory. The two share
nothing but plain values over a pair of pipes (`values.py`). The report goes to standard output.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import os
import random
import sys
from typing import Any, NoReturn

from interplay.execution.jail.script import become_script
from interplay.execution.jail.values import get, pack, put, unpack


class Remote:
    """What the program returned and cannot be copied: equal to nothing, and neither true nor false."""

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
    if type(x) is Remote:
        number: int = x._number
        return number
    raise TypeError("cannot be passed to the program")


class Program:
    """The process that runs the program, as the referee sees it."""

    def __init__(self, source: str, entry: str) -> None:
        asked, self.asked = os.pipe()
        self.answered, answer = os.pipe()
        if os.fork() == 0:
            _become_program(source, entry, asked, answer)
        for fd in (asked, answer):
            os.close(fd)
        self.calls: list[str] = []  # what the program answered since this was last emptied
        self.lost = False  # once an answer could not be read, none can

    def ask(self, what: str, target: int | str, rest: Any) -> Any:
        if self.lost:
            raise EOFError("it gave no answer")
        try:
            put(self.asked, [what, target, rest if what == "get" else pack(rest, _number_of)])
            verdict, got, more = get(self.answered)
            if verdict not in ("ok", "raised") or not isinstance(more, list | str):
                raise EOFError
        except (OSError, EOFError, ValueError):
            self.lost = True
            raise EOFError("it gave no answer") from None
        unnamed = type(got) is dict and "h" in got
        self.calls.append("raised" if verdict == "raised" else "?" if unnamed else json.dumps(got))
        if verdict == "raised":
            known = [getattr(builtins, n, None) for n in got]
            kind = next((k for k in known if isinstance(k, type) and issubclass(k, Exception)), RuntimeError)
            raise (RuntimeError if kind is AssertionError else kind)(more)
        if what == "call":
            _copy_changes(rest, [unpack(x, self.remote) for x in more])
        return unpack(got, self.remote)

    def remote(self, number: int | str) -> Remote:
        return Remote(self, number)


def _copy_changes(ours: tuple[Any, ...], theirs: list[Any]) -> None:
    """A function may change its arguments: so do those of the tests."""
    for mine, changed in zip(ours, theirs, strict=False):
        if type(mine) is list and type(changed) is list:
            mine[:] = changed
        elif type(mine) is type(changed) and type(mine) in (dict, set):
            mine.clear()
            mine.update(changed)


def _become_program(source: str, entry: str, asked: int, answer: int) -> NoReturn:
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        for fd in {*range(3, 256)} - {asked, answer}:
            with contextlib.suppress(OSError):
                os.close(fd)
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


def main() -> int:
    sys.set_int_max_str_digits(0)
    random.seed(0)
    first = get(0)
    program = Program(first["program"], first["entry"])
    report = _report(program, first["entry"], get(0))
    sys.stdout.write(json.dumps(report))
    sys.stdout.flush()
    return 0


def _report(program: Program, entry: str, wanted: dict[str, Any]) -> dict[str, Any]:
    report: dict[str, Any] = {"built": False, "loaded": False, "trouble": "", "passed": [], "errors": 0, "answers": []}
    try:
        report["built"], report["loaded"], report["trouble"] = get(program.answered)
    except Exception:
        report["trouble"] = "it ended before it could be called"
    if not report["loaded"]:
        report["trouble"] = report["trouble"] or f"it does not define {entry}"
        return report
    space = {"__name__": "referee", **{name: program.remote(name) for name in wanted["names"]}}
    try:
        exec(compile(wanted["setup"], "setup", "exec", dont_inherit=True), space)
    except Exception as error:
        report["trouble"] = f"the tests cannot be set up with it: {type(error).__name__}: {error}"[:200]
    if entry:
        space[entry] = space["candidate"] = program.remote(entry)
    for n, test in enumerate(wanted["tests"]):
        program.calls.clear()
        try:
            exec(compile(test, f"test {n + 1}", "exec", dont_inherit=True), space)
            done = bool(program.calls)
        except BaseException as error:
            done = False
            wrong = isinstance(error, AssertionError)
            report["errors"] += not wrong
            what = "wrong answer" if wrong else f"{type(error).__name__}: {error}"[:200]
            report["trouble"] = report["trouble"] or f"test {n + 1}: {what}"
        report["passed"].append(done)
        report["answers"].append("".join(program.calls))
    return report

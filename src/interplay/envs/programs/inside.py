"""The process of a run, from the inside: it is told a task, calls the program and reports how that ended.

It uses the standard library only, and no other file of the package, because `worker.py` imports it under the program's
own Python.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

LIMITS = [kind for name, kind in vars(resource).items() if name.startswith("RLIMIT_")]
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class FirstState:
    """The state of a process before its first run. It is restored after each run, so that the next run begins with the
    same. This is the state that the fork of a new process would restore; what the program's modules remember stays.
    `empty` removes everything in a folder and returns whether it is empty. All folders are in one file system."""

    def __init__(self, folders: Sequence[str], empty: Callable[[str], bool]) -> None:
        self.folders, self.empty, self.place = folders, empty, os.getcwd()
        self.variables = dict(os.environ)
        self.mask = os.umask(0)
        os.umask(self.mask)
        self.handlers = {number: signal.getsignal(number) for number in range(1, signal.SIGRTMIN)}
        self.streams = _standard_streams()
        self.limits = {kind: resource.getrlimit(kind) for kind in LIMITS}
        self.free = os.statvfs(folders[0]).f_bfree
        self.numpy = sys.modules.get("numpy.random")
        self.numbers = self.numpy.get_state(legacy=False) if self.numpy else None

    def restore(self, walled: bool) -> bool:
        """Returns whether it was possible. It is not if files of the run cannot be removed, if their space is still
        used because they are still open, if the run has closed or replaced a standard stream, or if it has lowered a
        limit that nobody may raise again."""
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self.handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        for kind, values in self.limits.items():
            if resource.getrlimit(kind) != values:
                resource.setrlimit(kind, values)
        os.umask(self.mask)
        os.chdir(self.place)
        if dict(os.environ) != self.variables:
            os.environ.clear()
            os.environ.update(self.variables)
        random.seed()  # as after a fork
        if self.numpy is not None:
            self.numpy.set_state(self.numbers)
        whole = all(self.empty(folder) for folder in self.folders) and _standard_streams() == self.streams
        return whole and (not walled or os.statvfs(self.folders[0]).f_bfree >= self.free)


def _standard_streams() -> list[tuple[int, int]]:
    """What standard input, output and error are connected to. An `OSError` if one of them is closed."""
    return [(found.st_dev, found.st_ino) for found in map(os.fstat, (0, 1, 2))]


class RunProcess:
    """Does the runs that the worker sends, one after another, and writes how they ended to the descriptor `result`.
    After each run it restores the state `first`; without it, the first run is the last. `place_of` finds the place of a
    crash."""

    def __init__(
        self,
        made: dict,
        function: Callable[..., object] | None,
        result: int,
        first: FirstState | None,
        place_of: Callable[[Sequence[tuple[str, int | None]]], str],
    ) -> None:
        self.made, self.function, self.result, self.first, self.place_of = made, function, result, first, place_of

    def serve(self, told: int, lend: Callable[[bytes], object] | None) -> None:
        """Read the orders, one on each line. When there are no more, the process is not needed any more. `lend` gives
        the gateway the socket on which this process reaches it, with the key of the process."""
        with os.fdopen(told, "rb") as pipe:
            while line := pipe.readline():
                order = json.loads(line)
                for name, value in order["environment"].items():
                    os.environ[name] = value  # `update` is slower in a new process: it touches more memory
                if lend is not None:
                    lend(order["environment"]["OPENAI_API_KEY"].encode())
                    lend = None
                if self.made["command"]:
                    os.execvpe(self.made["command"][0], self.made["command"], os.environ)
                if not self.call(order):
                    return

    def call(self, order: dict) -> bool:
        """Call the function and report its result. Returns whether the process can do another run. If so, the number of
        this run is in the report, so that nothing else that is written there looks like it by accident."""
        before, again, itself = len(sys.modules), False, os.getpid()
        try:
            assert self.function is not None
            told = {"result": self.function(order["task"])}
            if os.getpid() != itself:  # a process that the program has forked, which has nothing to report
                os._exit(0)
            # The newest modules are last. To look at the others would copy the memory of all their names.
            late = list(itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - before)))
            again = not order["last"] and self.restored()
            told |= {"imported": late[::-1], "again": order["id"] if again else None}
            written = self.as_json(told)
        except BaseException as error:
            if os.getpid() != itself:
                os._exit(1)
            frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
            crash = {"kind": type(error).__name__, "words": str(error)[:500], "place": self.place_of(frames)}
            again, written = False, json.dumps({"crash": crash}).encode()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the program may have closed it or put something else in its place
                stream.flush()
        written += b"\n"
        while written:
            written = written[os.write(self.result, written) :]
        if not again:
            os.close(self.result)
        return again

    def as_json(self, told: dict) -> bytes:
        """What is reported after a run that has returned: its result, or that its result cannot be written as JSON."""
        try:
            return json.dumps(told).encode()
        except (TypeError, ValueError, RecursionError) as error:
            words = f"its result cannot be written as JSON ({error}); expected text, numbers, lists and dictionaries"
            crash = {"kind": "UnreadableResult", "words": words[:500], "place": "an unknown place"}
            return json.dumps({"crash": crash}).encode()

    def restored(self) -> bool:
        try:
            return self.first is not None and self.first.restore(self.made["walls"])
        except (OSError, ValueError):  # ValueError: of a limit
            return False

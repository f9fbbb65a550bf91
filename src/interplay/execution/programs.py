"""Tests programs: runs them on test cases in the sandbox, and compares results where the program cannot interfere.

A program that reads and prints is run once per case. The expected output never enters the sandbox. The functions of a
program are called by a second process, the referee. Only the referee knows the tests and may report. The two processes
only exchange plain values over a pipe. So a program cannot pass by exiting early, by redefining `==` or `assert`, by
printing what a success looks like, or by searching memory for the answers.

If all answers of a program are the same and not all of them are right, the program ignores its input. A program may
also exit always instead of answering. Both are scored like a text that is not a program.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from interplay.errors import SandboxError
from interplay.execution.sandbox import Isolation, Job, Limits, RunResult, shared

LONGEST = 20_000  # a longer text, in characters, does not count as a program
MARGIN = 10.0  # wall-clock seconds per second of processor time, because machines may be busy
# The way programs print numbers. Python's float() also accepts 1_0.5 and the digits of other scripts.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Trial:
    """The results of a program on its tests, one per test. `trouble` is the first problem, for people to read."""

    built: bool
    ran: bool
    passed: tuple[bool, ...]
    trouble: str = ""

    @property
    def share(self) -> float:
        return sum(self.passed) / len(self.passed) if self.passed else 0.0

    @property
    def solved(self) -> bool:
        return bool(self.passed) and all(self.passed)


@dataclass(frozen=True)
class CheckerVerdict:
    """What a checker said about an output. If it said nothing, `trouble` says why."""

    accepted: bool
    trouble: str = ""


def _verdict(result: RunResult) -> CheckerVerdict:
    try:
        said = json.loads(result.stdout) if result.ok else {"accepted": None, "trouble": _last(result)}
        return CheckerVerdict(said["accepted"] is True, str(said["trouble"]))
    except (ValueError, KeyError, TypeError):
        return CheckerVerdict(False, "its verdict cannot be read")


def nothing(count: int, trouble: str) -> Trial:
    return Trial(False, False, (False,) * count, trouble)


@dataclass(frozen=True)
class Bench:
    """Where and how programs are tested. Results are cached, so the same program is not run twice."""

    isolation: Isolation = "strongest"
    seconds: float = 2.0  # processor time for each test
    memory_mb: float = 256.0

    @property
    def limits(self) -> Limits:
        return Limits(seconds=MARGIN * self.seconds, cpu_seconds=self.seconds, memory_mb=self.memory_mb, files_mb=4.0)

    def cases(self, program: str, cases: Sequence[Sequence[str]], checker: str = "") -> Trial:
        """Test a program that reads standard input, on pairs of input and expected output. If several outputs can be
        right, a `checker` decides (see `check`)."""
        if not 0 < len(program.strip()) <= LONGEST:
            return nothing(len(cases), "there is no program")
        return _cases(self, program, tuple((given, wanted) for given, wanted in cases), checker)

    def calls(self, program: str, tests: Sequence[str], entry: str, setup: str = "") -> Trial:
        """Test a program that defines `entry`, with statements that call it (by its name or as `candidate`)."""
        if not 0 < len(program.strip()) <= LONGEST:
            return nothing(len(tests), "there is no program")
        return _calls(self, program, tuple(tests), entry, setup)

    def check(self, checker: str, outputs: Sequence[tuple[str, str, str]]) -> tuple[CheckerVerdict, ...]:
        """The verdicts of a checker on outputs, each given as (input, expected, actual).

        A checker is a Python program that defines `check(input, expected, actual) -> bool`, all three as text. It also
        runs in the sandbox. If it fails on an output, or takes longer than a program may, it rejects the output."""
        jobs = []
        for given, wanted, got in outputs:
            asked = {"checker": checker, "input": given, "expected": wanted, "actual": got}
            jobs.append(Job(harness="checker", stdin=_messages(asked), limits=self.limits))
        return tuple(map(_verdict, shared(self.isolation).map(jobs)))


@lru_cache(maxsize=8192)
def _cases(bench: Bench, program: str, cases: tuple[tuple[str, str], ...], checker: str) -> Trial:
    jobs = []
    for given, wanted in cases:
        room = max(bench.limits.output_kb, len(wanted) / 256)  # four times the size of the expected output
        jobs.append(Job(program, stdin=given, limits=replace(bench.limits, output_kb=room)))
    results = shared(bench.isolation).map(jobs)
    if any("SyntaxError" in r.stderr.rpartition("\n  File")[2] and not r.stdout for r in results[:1]):
        return nothing(len(cases), _last(results[0]))
    passed = _right(bench, cases, results, checker)
    if all(r.ok for r in results) and _ignores([r.stdout for r in results], passed):
        return nothing(len(cases), "its output does not depend on its input")
    bad = next((i for i, done in enumerate(passed) if not done), None)
    trouble = "" if bad is None else _last(results[bad]) or f"case {bad + 1}: wrong output"
    return Trial(True, all(r.ok for r in results), passed, trouble)


def _right(
    bench: Bench, cases: Sequence[tuple[str, str]], results: Sequence[RunResult], checker: str
) -> tuple[bool, ...]:
    if not checker:
        return tuple(r.ok and same(wanted, r.stdout) for r, (_, wanted) in zip(results, cases, strict=True))
    outputs = [(given, wanted, r.stdout) for r, (given, wanted) in zip(results, cases, strict=True) if r.ok]
    verdicts = iter(bench.check(checker, outputs))
    return tuple(r.ok and next(verdicts).accepted for r in results)


def _last(result: RunResult) -> str:
    said = result.stderr.strip().rpartition("\n")[2]
    return "" if result.ok else f"{result.status}: {said}".removesuffix(": ")[:200]


def _ignores(answers: Sequence[str], passed: Sequence[bool]) -> bool:
    return len(answers) > 1 and len(set(answers)) == 1 and not all(passed)


def same(wanted: str, got: str) -> bool:
    """Whether two outputs are equal: by words and lines, with a relative tolerance of 1e-6 for decimal numbers.

    >>> same("1 2\\n3.0\\n", "1 2 \\n3.0000001"), same("12", "1 2"), same("a\\nb", "a b")
    (True, False, False)
    """
    ours, theirs = ([line.split() for line in text.strip().split("\n")] for text in (wanted, got))
    if [len(line) for line in ours] != [len(line) for line in theirs]:
        return False
    return all(_alike(a, b) for left, right in zip(ours, theirs, strict=True) for a, b in zip(left, right, strict=True))


def _alike(wanted: str, got: str) -> bool:
    if wanted == got:
        return True
    if "." not in wanted or not (_NUMBER.fullmatch(wanted) and _NUMBER.fullmatch(got)):
        return False
    a, b = float(wanted), float(got)
    return abs(a - b) <= 1e-6 * max(1.0, abs(a))


# -- functions --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def _calls(bench: Bench, program: str, tests: tuple[str, ...], entry: str, setup: str) -> Trial:
    report = _refereed(bench, program, tests, entry, setup)
    if isinstance(report, str):
        if program != _SOUND[0]:  # the program is the cause, unless the referee fails for every program
            sound = _refereed(bench, *_SOUND)
            if isinstance(sound, str) or sound["passed"] != [True]:
                raise SandboxError(f"the referee of a program failed: {report}")
        return nothing(len(tests), report)
    if not report["loaded"]:
        return nothing(len(tests), report["trouble"])
    passed = tuple(bool(done) for done in report["passed"])
    answers: list[str] = report["answers"]
    if not any(answers):
        return nothing(len(tests), "it gave no answer: it left, or used up its time or memory")
    if not report["raised"] and _ignores(answers, passed):
        return nothing(len(tests), "its answers do not depend on what it is given")
    return Trial(True, not report["errors"], passed, report["trouble"])


_SOUND = "def f(x): return x + 1", ("assert f(1) == 2",), "f", ""


def _refereed(bench: Bench, program: str, tests: tuple[str, ...], entry: str, setup: str) -> dict[str, Any] | str:
    """The referee's report, or a text that says why there is no report."""
    total = MARGIN * bench.seconds + 2 * bench.seconds * len(tests)  # a right program needs less than its time limits
    times = {"seconds": bench.seconds, "wall": MARGIN * bench.seconds, "total": total}
    stdin = _messages({"program": program, "entry": entry}, {"setup": setup, "tests": tests, **times})
    cpu = bench.seconds * (len(tests) + 1)
    limits = replace(bench.limits, seconds=total + MARGIN * bench.seconds, cpu_seconds=cpu)
    result = shared(bench.isolation).run(Job(harness="referee", stdin=stdin, limits=limits))
    if not result.ok:
        return _last(result)
    try:
        report: dict[str, Any] = json.loads(result.stdout)
        return report if len(report["passed"]) in (0, len(tests)) else "the report is not complete"
    except (ValueError, KeyError, TypeError):
        return "the report cannot be read"


def _messages(*parts: dict[str, Any]) -> str:
    """The messages in the format that the harnesses of the jail read."""
    texts = [json.dumps(part).encode() for part in parts]
    return b"".join(struct.pack("I", len(text)) + text for text in texts).decode("utf-8", "surrogateescape")

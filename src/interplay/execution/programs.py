"""What a program is worth: run on test cases in the sandbox, and compared where it cannot interfere.

A program that reads and prints is run once for each case; what it should have printed never enters the sandbox. A
program with functions is called by a second process, the referee, which alone knows the tests and alone may report:
the two share nothing but plain values over a pipe. So a program cannot pass by leaving early, by redefining `==` or
`assert`, by printing what success looks like, or by looking for the answers in memory.

A program whose answers are all the same where not all of them are right ignores what it is given, and one that always
leaves instead of answering says nothing: these count as no program at all.
"""

from __future__ import annotations

import ast
import builtins
import json
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from interplay.errors import SandboxError
from interplay.execution.sandbox import Isolation, Job, Limits, RunResult, shared

LONGEST = 20_000  # characters of a program; more is no program
MARGIN = 10.0  # wall-clock seconds allowed for each second of work: machines are busy


@dataclass(frozen=True)
class Trial:
    """How a program did on its tests: one entry for each. `trouble` is the first thing that went wrong, for people."""

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


def nothing(count: int, trouble: str) -> Trial:
    return Trial(False, False, (False,) * count, trouble)


@dataclass(frozen=True)
class Bench:
    """Where and how programs are tried. Trials are remembered: the same program is not run twice."""

    isolation: Isolation = "strongest"
    seconds: float = 2.0  # of work, for one case or for all calls of a test file
    memory_mb: float = 256.0

    @property
    def limits(self) -> Limits:
        return Limits(seconds=MARGIN * self.seconds, cpu_seconds=self.seconds, memory_mb=self.memory_mb, files_mb=4.0)

    def cases(self, program: str, cases: Sequence[Sequence[str]]) -> Trial:
        """A program that reads standard input, on pairs of input and expected output."""
        if not 0 < len(program.strip()) <= LONGEST:
            return nothing(len(cases), "there is no program")
        return _cases(self, program, tuple((given, wanted) for given, wanted in cases))

    def calls(self, program: str, tests: Sequence[str], entry: str, setup: str = "") -> Trial:
        """A program that defines `entry`, on statements that call it (as itself or as `candidate`)."""
        if not 0 < len(program.strip()) <= LONGEST:
            return nothing(len(tests), "there is no program")
        return _calls(self, program, tuple(tests), entry, setup)


@lru_cache(maxsize=8192)
def _cases(bench: Bench, program: str, cases: tuple[tuple[str, str], ...]) -> Trial:
    jobs = [Job(program, stdin=given, limits=bench.limits) for given, _ in cases]
    results = shared(bench.isolation).map(jobs)
    if any("SyntaxError" in r.stderr.rpartition("\n  File")[2] and not r.stdout for r in results[:1]):
        return nothing(len(cases), _last(results[0]))
    passed = tuple(r.ok and same(wanted, r.stdout) for r, (_, wanted) in zip(results, cases, strict=True))
    if all(r.ok for r in results) and _ignores([r.stdout for r in results], passed):
        return nothing(len(cases), "its output does not depend on its input")
    bad = next((i for i, done in enumerate(passed) if not done), None)
    trouble = "" if bad is None else _last(results[bad]) or f"case {bad + 1}: wrong output"
    return Trial(True, all(r.ok for r in results), passed, trouble)


def _last(result: RunResult) -> str:
    said = result.stderr.strip().rpartition("\n")[2]
    return "" if result.ok else f"{result.status}: {said}".removesuffix(": ")[:200]


def _ignores(answers: Sequence[str], passed: Sequence[bool]) -> bool:
    return len(answers) > 1 and len(set(answers)) == 1 and not all(passed)


def same(wanted: str, got: str) -> bool:
    """Whether two outputs say the same: word by word and line by line, numbers with a point to a part in a million.

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
    try:
        a, b = float(wanted), float(got)
    except ValueError:
        return False
    return "." in wanted and abs(a - b) <= 1e-6 * max(1.0, abs(a))


# -- functions --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def _calls(bench: Bench, program: str, tests: tuple[str, ...], entry: str, setup: str) -> Trial:
    setup, names = _known(tests, entry, setup)
    parts = ({"program": program, "entry": entry}, {"setup": setup, "names": names, "tests": tests})
    texts = [json.dumps(part).encode() for part in parts]
    stdin = b"".join(struct.pack("I", len(text)) + text for text in texts).decode("utf-8", "surrogateescape")
    result = shared(bench.isolation).run(Job(harness="referee", stdin=stdin, limits=bench.limits))
    if not result.ok:
        if result.status == "error":
            raise SandboxError(f"the referee of a program failed: {result.stderr.strip()[-300:]}")
        return nothing(len(tests), _last(result))
    report: dict[str, Any] = json.loads(result.stdout)
    if not report["loaded"]:
        return nothing(len(tests), report["trouble"])
    passed = tuple(bool(done) for done in report["passed"])
    answers: list[str] = report["answers"]
    if not any(answers):
        return nothing(len(tests), "it gave no answer: it left, or used up its time or memory")
    if "raised" not in answers and _ignores(answers, passed):
        return nothing(len(tests), "its answers do not depend on what it is given")
    return Trial(True, not report["errors"], passed, report["trouble"])


@lru_cache(maxsize=1024)
def _known(tests: tuple[str, ...], entry: str, setup: str) -> tuple[str, tuple[str, ...]]:
    """The setup with the imports that tests take for granted, and the names that only the program can have defined."""
    trees = [ast.parse(text) for text in (setup, *tests)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    used = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    stored |= {a.arg for n in nodes if isinstance(n, ast.arguments) for a in (*n.args, *n.kwonlyargs)}
    stored |= {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            stored |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    missing = {n for n in used if n not in stored and not hasattr(builtins, n)} - {"candidate"}
    imports = sorted(n for n in missing if n in sys.stdlib_module_names and n != entry)
    names = sorted((missing - set(imports)) | ({entry} if entry else set()))
    return "".join(f"import {n}\n" for n in imports) + setup, tuple(names)

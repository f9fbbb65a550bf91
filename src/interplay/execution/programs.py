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

# Two processes from one. The program's has no standard streams, and was forked before the tests were read.
_REFEREE = r'''
import builtins, json, os, re, struct, sys

sys.set_int_max_str_digits(0)

def exactly(fd, size):
    parts = b""
    while len(parts) < size:
        part = os.read(fd, min(size - len(parts), 1 << 16))
        if not part: raise EOFError
        parts += part
    return parts

def get(fd):
    size = struct.unpack("I", exactly(fd, 4))[0]
    if size > 1 << 27: raise EOFError
    return json.loads(exactly(fd, size))

def put(fd, value):
    data = json.dumps(value).encode()
    data = struct.pack("I", len(data)) + data
    while data: data = data[os.write(fd, data):]

def pack(x, keep):
    """Plain values by what they hold; anything else stays where it is and gets a number."""
    kind = type(x)
    if x is None or kind in (bool, int, str): return x
    if isinstance(x, bool): return bool(x)
    if isinstance(x, int): return int(x)
    if isinstance(x, str): return str.__str__(x)
    if isinstance(x, float): return {"f": repr(float(x))}
    if isinstance(x, complex): return {"c": repr(complex(x))}
    if isinstance(x, (bytes, bytearray)): return {"b": bytes(x).hex()}
    if isinstance(x, re.Match): return True
    if isinstance(x, type) and getattr(builtins, x.__name__, None) is x: return {"n": x.__name__}
    if isinstance(x, Remote): return {"h": object.__getattribute__(x, "number")}
    for tag, one in (("t", tuple), ("s", set), ("z", frozenset)):
        if isinstance(x, one): return {tag: [pack(y, keep) for y in one.__iter__(x)]}
    if isinstance(x, list): return [pack(y, keep) for y in list.__iter__(x)]
    if isinstance(x, dict): return {"d": [[pack(a, keep), pack(b, keep)] for a, b in dict.items(x)]}
    if isinstance(x, (range, map, filter, zip, enumerate, reversed)) or hasattr(kind, "__next__"):
        import itertools
        return {"g": [pack(y, keep) for y in itertools.islice(x, 100000)]}
    if keep is None: raise TypeError("cannot be passed to the program")
    keep.append(x)
    return {"h": len(keep) - 1}

def unpack(x, held):
    if isinstance(x, list): return [unpack(y, held) for y in x]
    if not isinstance(x, dict): return x
    ((tag, y),) = x.items()
    if tag == "f": return float(y)
    if tag == "c": return complex(y)
    if tag == "b": return bytes.fromhex(y)
    if tag == "h": return held(y)
    if tag == "n": return getattr(builtins, y)
    if tag == "d": return {unpack(a, held): unpack(b, held) for a, b in y}
    return {"t": tuple, "s": set, "z": frozenset, "g": iter}[tag]([unpack(z, held) for z in y])

class Remote:
    """What the program returned and cannot be copied: equal to nothing, and neither true nor false."""
    def __init__(self, number): object.__setattr__(self, "number", number)
    def __setattr__(self, name, value): ask("set", object.__getattribute__(self, "number"), (name, value))
    def __call__(self, *args): return ask("call", object.__getattribute__(self, "number"), args)
    def __getattr__(self, name): return ask("get", object.__getattribute__(self, "number"), name)
    def __iter__(self): return ask("iter", object.__getattribute__(self, "number"), None)
    def __bool__(self): raise TypeError("not a plain value")
    def __eq__(self, other): return self is other
    def __hash__(self): return id(self)

def serve(program, entry, asked, answer):
    keep = []
    space = {"__name__": "solution"}
    try:
        exec(compile(program, "solution.py", "exec"), space)
        put(answer, [True, entry in space or not entry, ""])
    except BaseException as error:
        put(answer, [not isinstance(error, SyntaxError), False, f"{type(error).__name__}: {error}"[:200]])
        return
    while True:
        what, target, rest = get(asked)
        try:
            thing = space[target] if isinstance(target, str) else keep[target]
            args = ()
            if what == "call":
                args = unpack(rest, keep.__getitem__)
                got = thing(*args)
            elif what == "set":
                got = setattr(thing, *unpack(rest, keep.__getitem__))
            else:
                got = iter(thing) if what == "iter" else getattr(thing, rest)
            put(answer, ["ok", pack(got, keep), [pack(a, keep) for a in args]])
        except Exception as error:
            names = [c.__name__ for c in type(error).__mro__]
            put(answer, ["raised", names, str(error)[:200]])

size = struct.unpack("I", exactly(0, 4))[0]
first = json.loads(exactly(0, size))
asked_r, asked_w = os.pipe()
answer_r, answer_w = os.pipe()
if os.fork() == 0:
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2): os.dup2(null, fd)
        os.closerange(answer_w + 1, 256)
        for fd in (asked_w, answer_r): os.close(fd)
        sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w", closefd=False), open(2, "w", closefd=False)
        serve(first["program"], first["entry"], asked_r, answer_w)
    finally:
        os._exit(0)
for fd in (asked_r, answer_w): os.close(fd)
second = get(0)
calls = []
lost = []  # once an answer could not be read, none can

def ask(what, target, rest):
    if lost: raise EOFError("it gave no answer")
    try:
        put(asked_w, [what, target, pack(rest, None) if what != "get" else rest])
        verdict, got, more = get(answer_r)
        if verdict not in ("ok", "raised") or not isinstance(more, (list, str)): raise EOFError
    except (OSError, EOFError, ValueError) as error:
        lost.append(True)
        raise EOFError("it gave no answer") from None
    calls.append("raised" if verdict == "raised" else "?" if type(got) is dict and "h" in got else json.dumps(got))
    if verdict == "raised":
        known = [getattr(builtins, n, None) for n in got]
        kind = next((k for k in known if isinstance(k, type) and issubclass(k, Exception)), RuntimeError)
        raise (RuntimeError if kind is AssertionError else kind)(more)
    for ours, theirs in zip(rest or () if what == "call" else (), more):
        changed = unpack(theirs, Remote)
        if type(ours) is list and type(changed) is list: ours[:] = changed
        elif type(ours) is dict and type(changed) is dict: ours.clear(); ours.update(changed)
        elif type(ours) is set and type(changed) is set: ours.clear(); ours.update(changed)
    return unpack(got, Remote)

report = {"built": False, "loaded": False, "trouble": "", "passed": [], "errors": 0, "answers": []}
try:
    report["built"], report["loaded"], report["trouble"] = get(answer_r)
except Exception:
    report["trouble"] = "it ended before it could be called"
if report["loaded"]:
    space = {"__name__": "referee", **{name: Remote(name) for name in second["names"]}}
    try:
        exec(second["setup"], space)
    except Exception as error:
        report["trouble"] = f"the tests cannot be set up with it: {type(error).__name__}: {error}"[:200]
    if first["entry"]: space[first["entry"]] = space["candidate"] = Remote(first["entry"])
    for n, test in enumerate(second["tests"]):
        calls.clear()
        try:
            exec(compile(test, f"test {n + 1}", "exec"), space)
            done = bool(calls)
        except BaseException as error:
            done = False
            wrong = isinstance(error, AssertionError)
            report["errors"] += not wrong
            report["trouble"] = report["trouble"] or f"test {n + 1}: " + ("wrong answer" if wrong else f"{type(error).__name__}: {error}"[:200])
        report["passed"].append(done)
        report["answers"].append("".join(calls))
elif not report["trouble"]:
    report["trouble"] = f"it does not define {first['entry']}"
print(json.dumps(report))
'''  # noqa: E501


@lru_cache(maxsize=8192)
def _calls(bench: Bench, program: str, tests: tuple[str, ...], entry: str, setup: str) -> Trial:
    setup, names = _known(tests, entry, setup)
    parts = ({"program": program, "entry": entry}, {"setup": setup, "names": names, "tests": tests})
    texts = [json.dumps(part).encode() for part in parts]
    stdin = b"".join(struct.pack("I", len(text)) + text for text in texts).decode("utf-8", "surrogateescape")
    result = shared(bench.isolation).run(Job(_REFEREE, stdin=stdin, limits=bench.limits))
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

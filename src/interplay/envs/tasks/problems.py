"""Programming problems: what a row of kind `code` says, how a program for it is tried, and problems made on the spot.

A row holds `question`, `style` ("stdio": the program reads and prints; "calls": it defines `entry`), `tests` (pairs of
input and output, or statements with asserts) that stay hidden, `examples` of the same form that are shown, `setup` that
the statements need, `starter` that calls begin with, and, where known, `golden`, a right program, and `buggy`, one
that is not.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from interplay.envs.splits import TRIES, split_of
from interplay.errors import ConfigError
from interplay.execution.programs import LONGEST, Bench, Trial
from interplay.rewards.mutants import python_mutants
from interplay.rewards.reply import spoken

Test = str | tuple[str, str]
MOST_TESTS = 20  # hidden ones that are run
WIDEST = 600  # characters of one written test
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def code_in(reply: str) -> str:
    """The program in a reply, after any thoughts: its last fenced block, or all of it where nothing is fenced."""
    reply = spoken(reply).replace("\r\n", "\n")
    blocks = _FENCE.findall(reply)
    return (blocks[-1] if blocks else reply).strip("\n")


@dataclass(frozen=True)
class Problem:
    """A row of kind `code`, with values that can be compared and remembered."""

    question: str
    style: str
    entry: str
    starter: str
    setup: str
    tests: tuple[Test, ...]
    examples: tuple[Test, ...]
    golden: str
    buggy: str

    @staticmethod
    def of(row: Mapping[str, Any]) -> Problem:
        tests, shown = (tuple(t if isinstance(t, str) else (t[0], t[1]) for t in row[k]) for k in ("tests", "examples"))
        texts = {k: row.get(k) or "" for k in ("entry", "starter", "setup", "golden", "buggy")}
        return Problem(row["question"], row["style"], tests=tests[:MOST_TESTS], examples=shown, **texts)

    def try_(self, bench: Bench, program: str, tests: Sequence[Test] | None = None) -> Trial:
        """On the hidden tests, or on those given."""
        chosen = self.tests if tests is None else tests
        if self.style == "stdio":
            return bench.cases(program, [t for t in chosen if not isinstance(t, str)])
        return bench.calls(program, [t for t in chosen if isinstance(t, str)], self.entry, self.setup)

    def bugs(self, bench: Bench, most: int) -> tuple[str, ...]:
        """Small changes to the golden program that its hidden tests catch."""
        return _bugs(self, bench, most) if self.golden else ()

    @property
    def text(self) -> str:
        """The problem as players see it."""
        parts = [self.question.strip()]
        if self.style == "stdio":
            parts.append("The program reads standard input and prints to standard output.")
            for given, wanted in (e for e in self.examples if not isinstance(e, str)):
                parts.append(f"Example input:\n{given.strip()}\nExample output:\n{wanted.strip()}")
        else:
            if self.starter:
                parts.append(f"It begins:\n{self.starter.rstrip()}")
            else:
                parts.append(f"It is named {self.entry}.")
            parts += [f"Example: {test}" for test in self.examples]
        return "\n".join(parts)

    @property
    def form(self) -> str:
        """How one test is written."""
        if self.style == "stdio":
            return '{"input": "...", "output": "..."} (JSON, one line)'
        return f"assert {self.entry}(arguments) == value, with plain values"

    def read_test(self, line: str) -> Test | None:
        """A test in the form; None for anything else, such as an example that was shown."""
        line = line.strip()
        found = _pair(line) if self.style == "stdio" else _statement(line, self.entry)
        shown = {e if isinstance(e, str) else _trim(e) for e in self.examples}
        shown |= {s for e in self.examples if isinstance(e, str) and (s := _statement(e, self.entry))}
        return None if found in shown else found

    def write_tests(self, most: int) -> list[str]:
        """Hidden tests in the form, for scripted players."""
        if self.style == "stdio":
            pairs = (t for t in self.tests if not isinstance(t, str))
            lines = [json.dumps({"input": given, "output": wanted}) for given, wanted in pairs]
        else:
            named = (re.sub(r"\bcandidate\b", self.entry, t) for t in self.tests if isinstance(t, str))
            lines = [found for test in named if (found := _statement(test, self.entry))]
        return lines[:most]


def _trim(pair: tuple[str, str]) -> tuple[str, str]:
    return pair[0].strip(), pair[1].strip()


def _pair(line: str) -> tuple[str, str] | None:
    if len(line) > WIDEST:
        return None
    try:
        said = json.loads(line)
        given, wanted = said["input"], said["output"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(given, str) or not isinstance(wanted, str) or set(said) != {"input", "output"}:
        return None
    return _trim((given, wanted)) if wanted.strip() else None


def _statement(line: str, entry: str) -> str | None:
    """`assert entry(plain values) == plain value`, as ast writes it."""
    if len(line) > WIDEST:
        return None
    try:
        (node,) = ast.parse(line).body
        assert isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and node.msg is None
        (op,), (wanted,), call = node.test.ops, node.test.comparators, node.test.left
        assert isinstance(op, ast.Eq) and isinstance(call, ast.Call) and not call.keywords
        assert isinstance(call.func, ast.Name) and call.func.id == entry
        for value in (wanted, *call.args):
            ast.literal_eval(value)
        return ast.unparse(node)
    except (SyntaxError, ValueError, TypeError, AssertionError, MemoryError, RecursionError):
        return None


@lru_cache(maxsize=4096)
def _bugs(problem: Problem, bench: Bench, most: int) -> tuple[str, ...]:
    found: list[str] = []
    for program in python_mutants(problem.golden):
        if len(found) >= most:
            break
        trial = problem.try_(bench, program)
        if trial.built and trial.ran and not trial.solved:
            found.append(program)
    return tuple(found)


def normal(program: str) -> list[str]:
    """Its lines without layout and comments, as far as it can be parsed."""
    try:
        return ast.unparse(ast.parse(program[: LONGEST + 1])).split("\n")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return [line.strip() for line in program.split("\n") if line.strip()]


# -- made on the spot -------------------------------------------------------------------------------------------------

# What is done with a list of whole numbers `a`; {k} and {m} are drawn.
_LISTS = (
    ("the sum of those greater than {k}", "sum(x for x in a if x > {k})"),
    ("how many of them leave a remainder of {r} when divided by {m}", "sum(1 for x in a if x % {m} == {r})"),
    ("the largest of them with {k} added to it, less {m}", "max(a) + {k} - {m}"),
    ("the sum of every {m}th of them, beginning with the first", "sum(a[::{m}])"),
    ("how many different ones are smaller than {k}", "len(set(x for x in a if x < {k}))"),
    ("the sum of the products of each with {m}, less {k}", "sum(x * {m} for x in a) - {k}"),
    ("how often one of them is followed by one that is larger by at least {m}",
     "sum(1 for i in range(len(a) - 1) if a[i + 1] - a[i] >= {m})"),
    ("the sum of those whose distance from {k} is at most {m}", "sum(x for x in a if abs(x - {k}) <= {m})"),
)  # fmt: skip
_LEAST = 6  # hidden tests


def draw(rng: random.Random, split: str, style: str) -> dict[str, Any]:
    """A row, with a right program and one with a bug; its rule and numbers belong to one split."""
    style = rng.choice(("calls", "stdio")) if style == "any" else style
    for _ in range(TRIES):
        which, k, m = rng.randrange(len(_LISTS)), rng.randint(1, 20), rng.randint(2, 7)
        r = rng.randrange(m)
        if split_of(f"program {which} {k} {m} {r}") != split:
            continue
        words, body = (part.format(k=k, m=m, r=r) for part in _LISTS[which])
        inputs = _inputs(rng, _rule(body))
        if (wrong := next((b for b in python_mutants(body) if _is_bug(b, inputs)), None)) is not None:
            return _row(style, words, body, wrong, inputs)
    raise ConfigError(f"no problem is left for the {split} split.")


def _row(style: str, words: str, body: str, wrong: str, inputs: list[tuple[list[int], int]]) -> dict[str, Any]:
    if style == "stdio":
        question, frame = (
            f"Read a line of whole numbers. Print {words}.",
            "a = [int(w) for w in input().split()]\nprint({})",
        )
        tests: list[Any] = [[" ".join(map(str, a)), str(value)] for a, value in inputs]
    else:
        question = f"Write a function of a list of whole numbers that returns {words}."
        frame, tests = "def solve(a):\n    return {}", [f"assert solve({a}) == {value}" for a, value in inputs]
    row = {"question": question, "style": style, "entry": "solve" if style == "calls" else ""}
    known = {"golden": frame.format(body), "buggy": frame.format(wrong)}
    return {**row, **known, "tests": tests[1:], "examples": tests[:1]}


def _is_bug(body: str, inputs: list[tuple[list[int], int]]) -> bool:
    """Whether it still answers, not always the same, and not always right."""
    try:
        answers = [_rule(body)(a) for a, _ in inputs[1:]]
    except (ValueError, ArithmeticError, TypeError, IndexError):
        return False
    return len(set(answers)) > 1 and answers != [value for _, value in inputs[1:]]


def _rule(body: str) -> Callable[[list[int]], int]:
    made: Callable[[list[int]], int] = eval(f"lambda a: {body}")  # one of the lines above, or a small change to it
    return made


def _inputs(rng: random.Random, rule: Callable[[list[int]], int]) -> list[tuple[list[int], int]]:
    """Lists whose answers differ, so that no single answer is right for many."""
    found: dict[int, list[int]] = {}
    for _ in range(TRIES):
        a = [rng.randint(-5, 30) for _ in range(rng.randint(3, 12))]
        found.setdefault(rule(a), a)
        if len(found) > _LEAST:
            break
    return [(a, value) for value, a in found.items()]

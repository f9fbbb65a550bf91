"""Programming problems: the contents of a row of kind `code`, how a program for it is tested, and generated problems.

A row has `question`, `style` ("stdio": the program reads and prints; "calls": it defines `entry`), `tests` (pairs of
input and output, or statements with asserts), which stay hidden, `examples` of the same form, which are shown, `setup`
that the statements need, `starter` code that a program with calls begins with, and, if known, `golden`, a right
program, and `buggy`, a wrong one. If several outputs of a stdio problem are right, it may have a `checker`: a program
that defines `check(input, expected, actual) -> bool`.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from interplay.envs.splits import TRIES, split_of
from interplay.envs.tasks.written_test import HELPER, Assertion, input_lines, pair_of, shown_calls, shows_input
from interplay.errors import ConfigError
from interplay.execution.programs import LONGEST, Bench, Trial
from interplay.rewards.mutants import python_mutants
from interplay.rewards.reply import spoken

Test = str | tuple[str, str]
MOST_TESTS = 20  # the largest number of hidden tests that are run
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)


def code_in(reply: str) -> str:
    """The program in a reply, after any thoughts: its last fenced block, or all of it if it has no fenced block."""
    reply = spoken(reply).replace("\r\n", "\n")
    blocks = _FENCE.findall(reply)
    return (blocks[-1] if blocks else reply).strip("\n")


@dataclass(frozen=True)
class Problem:
    """A row of kind `code`, with values that can be compared and hashed."""

    question: str
    style: str
    entry: str
    starter: str
    setup: str
    tests: tuple[Test, ...]
    examples: tuple[Test, ...]
    golden: str
    buggy: str
    checker: str = ""

    @staticmethod
    def of(row: Mapping[str, Any]) -> Problem:
        tests, shown = (tuple(t if isinstance(t, str) else (t[0], t[1]) for t in row[k]) for k in ("tests", "examples"))
        texts = {k: row.get(k) or "" for k in ("entry", "starter", "setup", "golden", "buggy", "checker")}
        return Problem(row["question"], row["style"], tests=tests[:MOST_TESTS], examples=shown, **texts)

    def try_(self, bench: Bench, program: str, tests: Sequence[Test] | None = None) -> Trial:
        """Run a program on the hidden tests, or on tests that a role wrote."""
        if self.style == "stdio":
            chosen = self.tests if tests is None else tests
            return bench.cases(program, [t for t in chosen if not isinstance(t, str)], self.checker)
        if tests is None:
            return bench.calls(program, [t for t in self.tests if isinstance(t, str)], self.entry, self.setup)
        written = [made for t in tests if isinstance(t, str) and (made := Assertion.of(t))]
        statements = [made.helped if self._helped else str(made) for made in written]
        return bench.calls(program, statements, self.entry, self.setup)

    @property
    def _helped(self) -> bool:
        """Whether tuples and generators count as lists in this row's tests."""
        return f"def {HELPER}(" in self.setup

    @cached_property
    def callee(self) -> str:
        """The expression that a test calls."""
        tests = (made for t in (*self.examples, *self.tests) if isinstance(t, str) and (made := Assertion.of(t)))
        named = next((made.callee for made in tests), self.entry)
        return self.entry if named == "candidate" else named

    def bugs(self, bench: Bench, most: int) -> tuple[str, ...]:
        """Small changes to the golden program that its hidden tests detect."""
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
            parts += [f"Example: {Assertion.of(t) or t}" for t in self.examples if isinstance(t, str)]
        return "\n".join(parts)

    @property
    def form(self) -> str:
        """The form of one test."""
        if self.style == "stdio":
            return '{"input": "...", "output": "..."} (JSON, one line)'
        return f"assert {self.callee}(arguments) == value, with plain values"

    def read_test(self, line: str) -> Test | None:
        """A test in this form; None for anything else, and for a test that the problem shows."""
        line = line.strip()
        if self.style == "stdio":
            pair = pair_of(line)
            return None if pair is None or self._shows_input(pair[0]) else pair
        made = Assertion.of(line)
        if made is None or made.callee != self.callee or made.given in self._shown_calls:
            return None
        return str(made)

    def _shows_input(self, given: str) -> bool:
        examples = (input_lines(e[0]) for e in self.examples if not isinstance(e, str))
        return input_lines(given) in examples or shows_input(self.question, given)

    @cached_property
    def _shown_calls(self) -> frozenset[tuple[str, ...]]:
        """The arguments in the examples, the statement and the docstring."""
        examples = (made.given for e in self.examples if isinstance(e, str) and (made := Assertion.of(e)))
        return frozenset((*examples, *shown_calls(f"{self.question}\n{self.starter}", self.callee)))

    def write_tests(self, most: int) -> list[str]:
        """Hidden tests in this form, for scripted players."""
        if self.style == "stdio":
            pairs = (t for t in self.tests if not isinstance(t, str))
            lines = [json.dumps({"input": given, "output": wanted}) for given, wanted in pairs]
        else:
            named = (re.sub(r"\bcandidate\b", self.entry, t) for t in self.tests if isinstance(t, str))
            lines = [str(made) for test in named if (made := Assertion.of(test))]
        return [line for line in lines if self.read_test(line) is not None][:most]


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
    """Its lines without layout and comments, if it can be parsed."""
    try:
        return ast.unparse(ast.parse(program[: LONGEST + 1])).split("\n")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return [line.strip() for line in program.split("\n") if line.strip()]


# -- generated problems -----------------------------------------------------------------------------------------------

# Functions of a list of whole numbers `a`; {k} and {m} are drawn.
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
_LEAST = 6  # the smallest number of hidden tests


def draw(rng: random.Random, split: str, style: str) -> dict[str, Any]:
    """A row with a right program and a program with a bug. Its rule and numbers belong to one split."""
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
    raise ConfigError(f"no problem was found for the {split} split; expected another seed.")


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
    """Whether the program still answers, with answers that are not all the same and not all right."""
    try:
        answers = [_rule(body)(a) for a, _ in inputs[1:]]
    except (ValueError, ArithmeticError, TypeError, IndexError):
        return False
    return len(set(answers)) > 1 and answers != [value for _, value in inputs[1:]]


def _rule(body: str) -> Callable[[list[int]], int]:
    made: Callable[[list[int]], int] = eval(f"lambda a: {body}")  # one of the lines above, or a small change to it
    return made


def _inputs(rng: random.Random, rule: Callable[[list[int]], int]) -> list[tuple[list[int], int]]:
    """Lists whose answers differ, so that no single answer is right for many of them."""
    found: dict[int, list[int]] = {}
    for _ in range(TRIES):
        a = [rng.randint(-5, 30) for _ in range(rng.randint(3, 12))]
        found.setdefault(rule(a), a)
        if len(found) > _LEAST:
            break
    return [(a, value) for value, a in found.items()]

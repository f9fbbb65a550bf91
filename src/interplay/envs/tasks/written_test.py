"""One test of a program as text: parses, shows and runs it, and finds out whether a problem already shows it.

A test of a function is `assert f(1, 2) == 3` with plain values. Data sets wrap theirs, `assert plain(f(*[1, 2])) == 3`,
so that tuples and generators count as lists. Players read and write the plain form. A test of a program that reads and
prints is a pair of input and output.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
WIDEST = 600  # the largest number of characters in one test
HELPER = "plain"  # turns tuples and generators into lists, because public files write them as lists
HELPER_SETUP = (  # the definition, in the setup of the rows that use it
    "def plain(x):\n    return [plain(y) for y in x] if isinstance(x, (list, tuple)) or hasattr(x, '__next__') else x\n"
)


@dataclass(frozen=True)
class Assertion:
    """The arguments of a function call and the expected result. `callee` is its name, or `Solution().name`."""

    callee: str
    arguments: tuple[str, ...]  # each in Python syntax
    wanted: str

    @staticmethod
    def of(line: str) -> Assertion | None:
        """Parse a line; None for anything other than an assertion with plain values."""
        if len(line) > WIDEST:
            return None
        try:
            (node,) = ast.parse(line).body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            return None
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]), msg=None):
                return _assertion(_unhelped(left), _unhelped(right))
        return None

    def __str__(self) -> str:
        return f"assert {self.callee}({', '.join(self.arguments)}) == {self.wanted}"

    @property
    def given(self) -> tuple[str, ...]:
        """The arguments in one way of writing, for comparisons."""
        return tuple(_written(ast.literal_eval(argument)) for argument in self.arguments)

    @property
    def helped(self) -> str:
        """The statement for a program whose tuples and generators count as lists."""
        return f"assert {HELPER}({self.callee}({', '.join(self.arguments)})) == {HELPER}({self.wanted})"


def _written(value: Any) -> str:
    """A value in one way of writing: 1, 1.0 and True are the same, and so are lists and tuples."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{_written(k)}: {_written(v)}' for k, v in value.items()))}}}"
    if isinstance(value, set):
        return f"{{{', '.join(sorted(map(_written, value)))}}}"
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return repr(int(value) if whole else value)


def _unhelped(node: ast.expr) -> ast.expr:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name == HELPER:
            return inner
    return node


def _assertion(call: ast.expr, wanted: ast.expr) -> Assertion | None:
    if not isinstance(call, ast.Call) or call.keywords or not _is_callee(call.func):
        return None
    try:
        arguments: list[Any] = []
        for node in call.args:
            if isinstance(node, ast.Starred):
                arguments += list(ast.literal_eval(node.value))
            else:
                arguments.append(ast.literal_eval(node))
        made = Assertion(ast.unparse(call.func), tuple(map(repr, arguments)), repr(ast.literal_eval(wanted)))
        for text in (*made.arguments, made.wanted):  # 1e999 is a value, but `inf`, its repr, is a name
            ast.literal_eval(text)
        return made if len(str(made)) <= WIDEST else None  # a number is longer in decimal than in hexadecimal digits
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_callee(node: ast.expr) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=ast.Call(func=ast.Name(), args=[], keywords=[])):
            return True
    return False


def shown_calls(text: str, callee: str) -> Iterator[tuple[str, ...]]:
    """The arguments of every call of a function in a text, such as the examples of a docstring, as in
    `Assertion.given`."""
    name = callee.rpartition(".")[2]
    for found in re.finditer(rf"\b{re.escape(name)}\(", text):
        for end in re.finditer(r"\)", text[found.end() : found.end() + WIDEST]):
            call = f"f({text[found.end() : found.end() + end.end()]}"
            try:
                node = ast.parse(call, mode="eval").body
                assert isinstance(node, ast.Call)
                yield tuple(_written(ast.literal_eval(argument)) for argument in node.args)
                break
            except (SyntaxError, ValueError, TypeError, AssertionError, MemoryError, RecursionError):
                continue


def pair_of(line: str) -> tuple[str, str] | None:
    """The input and output of a test in JSON; None for anything else."""
    if len(line) > WIDEST:
        return None
    try:
        said = json.loads(line)
        given, wanted = said["input"], said["output"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(given, str) or not isinstance(wanted, str) or set(said) != {"input", "output"}:
        return None
    return (given.strip(), wanted.strip()) if wanted.strip() else None


def shows_input(text: str, given: str) -> bool:
    """Whether a text contains an input, line by line, as the examples of a problem statement do."""
    if not given.strip():
        return False
    lines, wanted = input_lines(text), input_lines(given)
    return any(lines[i : i + len(wanted)] == wanted for i in range(len(lines) - len(wanted) + 1))


def input_lines(text: str) -> list[list[str]]:
    """The words of each line in one way of writing: whole numbers have no plus sign and no zeros in front."""
    lines = (line.split() for line in text.strip().split("\n"))
    return [[str(int(word)) if _WHOLE.fullmatch(word) else word for word in line] for line in lines]

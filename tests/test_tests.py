"""Every test asserts something, because a test that cannot fail shows nothing. The longest tests start first."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: str) -> list[Function]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)]


def checks(function: Function, helpers: set[str]) -> bool:
    """Whether a function has an assertion, expects an exception, or calls a function that does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in helpers or name.startswith("assert_") or name in ("raises", "warns", "fail"):
                return True
    return False


def checking(found: Iterable[Function], known: set[str]) -> set[str]:
    """The names of `known`, and of the functions that check something themselves or call one that does."""
    found, names = list(found), set(known)
    while more := {f.name for f in found if checks(f, names)} - names:
        names |= more
    return names


def without_assertion(source: str, shared: set[str]) -> list[str]:
    """The tests in a file that assert nothing. Functions of the file itself and `shared` ones may assert for them."""
    found = functions(source)
    helpers = checking((f for f in found if not f.name.startswith("test_")), shared)
    return [f.name for f in found if f.name.startswith("test_") and not checks(f, helpers)]


def test_every_test_asserts_something() -> None:
    files = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    helping = [source for path, source in files.items() if not path.name.startswith("test_")]
    shared = checking((f for source in helping for f in functions(source)), set())
    empty = {
        str(p.relative_to(TESTS)): names for p, source in files.items() if (names := without_assertion(source, shared))
    }
    assert empty == {}


def test_the_rule_catches_planted_violations() -> None:
    source = """
def helper(x): assert x
def indirect(x): helper(x)
def test_empty(): print(1)
def test_called(): sum([1])
def test_good(): assert 1
def test_helped(): indirect(1)
def test_raises():
    with pytest.raises(ValueError): int("x")
async def test_shared(): await common(1)
"""
    assert without_assertion(source, {"common"}) == ["test_empty", "test_called"]


@pytest.mark.parametrize(("long", "others"), [(7, 40), (4, 0), (2, 9), (0, 5), (5, 3)])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_process_begins_with_its_share_of_the_long_tests(
    load_script: Callable[[str], ModuleType], long: int, others: int, processes: int
) -> None:
    """The list is divided here as pytest-xdist divides it with `--dist worksteal`."""
    order = load_script("tests/conftest.py").long_first
    items = order(list(range(long)), list(range(100, 100 + others)), processes)
    assert sorted(items) == [*range(long), *range(100, 100 + others)]
    assert [item for item in items if item >= 100] == sorted(item for item in items if item >= 100)
    shares = []
    for left in range(processes, 0, -1):
        part, items = items[: len(items) // left], items[len(items) // left :]
        shares.append(sum(item < 100 for item in part))
        assert all(item < 100 for item in part[: shares[-1]])
    assert max(shares) - min(shares) <= 1

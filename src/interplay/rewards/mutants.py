"""Plants small bugs in right programs. Tests are scored by how many of these bugs they catch.

Each mutant has one change: a comparison, an operator, a constant, a condition, or the name of a call. The order depends
only on the program, so everybody is scored with the same bugs. A mutant counts as a bug only if some test notices it.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator
from functools import lru_cache

from interplay.execution import verilog
from interplay.execution.sandbox import Isolation
from interplay.types import seed_of

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATE: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max", "sorted": "list"}


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Every version of the node with one change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        yield ast.Compare(node.left, [_COMPARE[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATE:
        yield ast.BinOp(node.left, _OPERATE[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATE:
        yield ast.AugAssign(node.target, _OPERATE[type(node.op)](), node.value)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield ast.Call(ast.Name(_CALLS[node.func.id], ast.Load()), node.args, node.keywords)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)


def python_mutants(source: str, most: int = 24) -> Iterator[str]:
    """Programs that differ from `source` in one place, at most `most` of them, in an order fixed by the source."""
    tree = ast.parse(source)
    places = [node for node in ast.walk(tree) if any(True for _ in _changes(node))]
    random.Random(seed_of("mutants", source)).shuffle(places)
    seen = {ast.unparse(tree)}
    for place in places:
        for n in range(sum(1 for _ in _changes(place))):
            text = ast.unparse(_Replace(tree, place, n).made())
            if text not in seen and len(seen) <= most:
                seen.add(text)
                yield text


class _Replace(ast.NodeTransformer):
    """Copies the tree with change number `n` at `place`."""

    def __init__(self, tree: ast.Module, place: ast.AST, n: int) -> None:
        self.tree, self.at, self.n = copy.deepcopy(tree), list(ast.walk(tree)).index(place), n

    def made(self) -> ast.Module:
        self.target = list(ast.walk(self.tree))[self.at]
        made = self.visit(self.tree)
        assert isinstance(made, ast.Module)
        return ast.fix_missing_locations(made)

    def visit(self, node: ast.AST) -> ast.AST:
        return list(_changes(node))[self.n] if node is self.target else self.generic_visit(node)


# -- Verilog ----------------------------------------------------------------------------------------------------------

_SWAPS = [
    (r"(?<![&~^|])&(?!&)", "|"), (r"(?<![|~^&])\|(?!\|)", "&"), (r"&&", "||"), (r"\|\|", "&&"), (r"\^(?!~)", "|"),
    (r"(?<![+])\+(?![+:])", "-"), (r"(?<![-])-(?![->:])", "+"), (r"==(?!=)", "!="), (r"!=(?!=)", "=="),
    (r"(?<![<=>])<(?![<=])", ">"), (r"(?<![->=])>(?![>=])", "<"), (r"~(?![&|^])", ""), (r"\bposedge\b", "negedge"),
    (r"1'b0", "1'b1"), (r"1'b1", "1'b0"), (r"<<", ">>"), (r">>", "<<"), (r"\b1\b(?!')", "2"),
    (r"(?<!['\w])0\b(?!')", "1"),
]  # fmt: skip


def verilog_mutants(source: str, most: int = 24) -> list[str]:
    """The same for Verilog, changed word by word in the body of the module but not in its ports."""
    start = source.index(";", source.index("module")) + 1 if "module" in source else 0
    places = [(m, new) for old, new in _SWAPS for m in re.finditer(old, source) if m.start() >= start]
    random.Random(seed_of("mutants", source)).shuffle(places)
    made = (source[: m.start()] + new + source[m.end() :] for m, new in places)
    return [text for text in dict.fromkeys(made) if text != source][:most]


@lru_cache(maxsize=1024)
def verilog_bugs(golden: str, reference: str, bench: str, isolation: Isolation, most: int) -> tuple[str, ...]:
    """Small changes to the golden design that the data set's bench detects."""
    found: list[str] = []
    for design in verilog_mutants(golden):
        if len(found) >= most:
            break
        if verilog.simulated(design, reference, bench, isolation).mismatches:
            found.append(design)
    return tuple(found)

"""Computes formulas given as text in floating point, within limits, and compares formulas by their values.

A formula has numbers, named variables, pi and e, + - * / ** (or ^), brackets, and a few functions. The text is parsed
and never executed. Its length and size are limited, and a formula without a finite real value gives None, so nothing
hangs or raises.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

LONGEST = 400  # characters
NODES = 150
POWER = 20.0
FUNCTIONS: Mapping[str, Callable[[float], float]] = {
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos, "tan": math.tan, "abs": abs,
}  # fmt: skip
CONSTANTS = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
Point = Mapping[str, float]


class FormulaError(ValueError):
    """Says why a text is not a formula, in words for its author."""


class Formula:
    """A formula over some variables; call it with a point.

    >>> Formula("2*x^2 + sqrt(y)", ("x", "y"))({"x": 3.0, "y": 4.0})
    20.0
    """

    def __init__(self, text: str, variables: Sequence[str]) -> None:
        self.text = text.strip().replace("^", "**").replace("·", "*").replace("×", "*").replace("−", "-")
        if not self.text or len(self.text) > LONGEST:
            raise FormulaError("it is empty" if not self.text else f"it is longer than {LONGEST} characters")
        try:
            tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise FormulaError("it is no formula") from None
        nodes = list(ast.walk(tree))
        if len(nodes) > NODES:
            raise FormulaError("it is too large")
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if id(node) not in called:
                _check(node, variables)
        self._value = _compiled(tree)

    def __call__(self, point: Point) -> float | None:
        """The value; None if there is no finite real value."""
        try:
            value = self._value(point)
        except (ArithmeticError, ValueError):
            return None
        return value if math.isfinite(value) else None


def _check(node: ast.AST, variables: Sequence[str]) -> None:
    match node:
        case ast.Constant(value=value) if isinstance(value, int | float) and not isinstance(value, bool):
            # The size is tested first, because a large integer cannot become a float.
            if abs(value) > 1e12 or not math.isfinite(value):
                raise FormulaError("a number in it is too large")
        case ast.Name(id=name):
            if name not in (*variables, *CONSTANTS):
                raise FormulaError(f"'{name[:20]}' is not known; variables: {', '.join(variables)}")
        case ast.Call(func=ast.Name(id=name), args=[_], keywords=[]) if name in FUNCTIONS:
            pass
        case ast.BinOp(op=op) if type(op) in _OPERATORS or isinstance(op, ast.Pow):
            pass
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            pass
        case ast.operator() | ast.unaryop() | ast.expr_context():
            pass
        case _:
            raise FormulaError("it may hold numbers, variables, + - * / ** and " + ", ".join(FUNCTIONS))


def _compiled(node: ast.expr) -> Callable[[Point], float]:
    """A function of a point. The tree is walked once: a law is asked at hundreds of points."""
    match node:
        case ast.Constant(value=int() | float() as given):
            number = float(given)
            return lambda point: number
        case ast.Name(id=name):
            return lambda point: point[name] if name in point else CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand):
            inner = _compiled(operand)
            return (lambda point: -inner(point)) if isinstance(op, ast.USub) else inner
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            function, of = FUNCTIONS[name], _compiled(argument)
            return lambda point: function(of(point))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, exponent = _compiled(left), _compiled(right)
            return lambda point: _power(base(point), exponent(point))
        case ast.BinOp(left=left, op=op, right=right):
            both, first, second = _OPERATORS[type(op)], _compiled(left), _compiled(right)
            return lambda point: both(first(point), second(point))
    raise FormulaError("it is no formula")


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > POWER or (base < 0 and not exponent.is_integer()):
        raise ArithmeticError("no such power")
    return float(base**exponent)


def agrees(formula: Formula, truth: Formula, points: Sequence[Point], tolerance: float) -> bool:
    """Whether two formulas have the same value at every point where the truth has one.

    The tolerance is relative to the value. For small values it is relative to the mean size of all values, or to 1 if
    that is less. So a law may pass through 0, but a law with small values everywhere does not equal 0.
    """
    wanted = [truth(point) for point in points]
    sizes = [abs(value) for value in wanted if value is not None]
    least = min(1.0, fmean(sizes)) if sizes else 1.0
    for point, value in zip(points, wanted, strict=True):
        given = formula(point)
        if value is not None and (given is None or abs(given - value) > tolerance * max(least, abs(value))):
            return False
    return True

"""Arithmetic as text, computed exactly and within limits: what a calculator tool can do, and nothing else.

Numbers, + - * / // % ** and brackets. The text is parsed, never executed; its length, the size of every intermediate
number and of every power are bounded, so that `9**9**9` is an error like any other and not a wait.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

LONGEST = 300  # characters
LARGEST = 10**40  # of any number on the way, above and below the line
POWER = 64

_ALLOWED = re.compile(r"[\d+\-*/%()., ]+")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: operator.mod,
}


class CalculatorError(ValueError):
    """Why there is no result, in a few words that can be shown to whoever asked. `built`: it was an expression."""

    def __init__(self, why: str, built: bool = False) -> None:
        super().__init__(why)
        self.built = built


def calculate(text: str) -> Fraction:
    """The value of an expression with at least one operator.

    >>> calculate("(12 + 7) * 3"), calculate("1,200 / 16")
    (Fraction(57, 1), Fraction(75, 1))
    """
    text = text.strip().replace("×", "*").replace("÷", "/").replace("−", "-").replace("^", "**")
    if not text or len(text) > LONGEST:
        raise CalculatorError("no expression" if not text else f"longer than {LONGEST} characters")
    if not _ALLOWED.fullmatch(text):
        raise CalculatorError("only numbers, + - * / // % ** and brackets can be computed")
    try:
        tree = ast.parse(_GROUPED.sub("", text), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise CalculatorError("not an expression") from None
    if not any(isinstance(node, ast.BinOp) for node in ast.walk(tree)):
        raise CalculatorError("nothing to compute")
    return _value(tree)


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=inner):
            return _value(inner) if isinstance(sign, ast.UAdd) else -_value(inner)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            try:
                return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
            except ZeroDivisionError:
                raise CalculatorError("division by zero", built=True) from None
    raise CalculatorError("not an expression")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > POWER:
        raise CalculatorError(f"powers are whole numbers up to {POWER}", built=True)
    if base == 0 and exponent < 0:
        raise CalculatorError("division by zero", built=True)
    return _bounded(base ** int(exponent))


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) > LARGEST:
        raise CalculatorError("a number is too large", built=True)
    return value


def shown(value: Fraction) -> str:
    """A value as people write it: whole, or as a decimal where that is exact and short, else as a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    decimal = f"{float(value):.10g}"
    return decimal if Fraction(decimal) == value else str(value)

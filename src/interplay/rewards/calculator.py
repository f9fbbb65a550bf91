"""Computes arithmetic given as text, exactly and within limits, for a calculator tool.

It knows numbers, + - * / // % ** and brackets. The text is parsed and never executed. Its length, the size of every
intermediate number and the size of every power are limited, so `9**9**9` is an error and does not take long.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

LONGEST = 300  # characters
LARGEST = 10**40  # limit of every intermediate numerator and denominator
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
    """Says why there is no result, in words for the caller. `built` means that the text was a valid expression."""

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
    """A value as people write it: an integer, a decimal if it is exact and short, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    decimal = f"{float(value):.10g}"
    return decimal if Fraction(decimal) == value else str(value)

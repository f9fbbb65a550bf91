"""Whether two query results are equal: columns in any order, and rows in any order unless the query orders them.

Integers are compared exactly, and decimal numbers with a relative tolerance of 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from interplay.execution.query import Cell, QueryResult

CLOSE = 1e-6
MATCHINGS = 1_000  # the largest number of column orders that are tried
_Row = tuple[Cell, ...]


def same(gold: QueryResult, other: QueryResult, ordered: bool = False) -> bool:
    """Whether two results are equal. A result that failed equals no other."""
    if gold.error or other.error or len(gold.rows) != len(other.rows) or len(gold.columns) != len(other.columns):
        return False
    for order in _matchings(gold.rows, other.rows):
        given = [tuple(row[i] for i in order) for row in other.rows]
        if ordered:
            found = _equal(gold.rows, given)
        else:  # exact keys keep large integers apart, rounded keys bring decimal numbers together that are nearly equal
            found = any(_equal(_sorted(gold.rows, key), _sorted(given, key)) for key in (_exact, _rounded))
        if found:
            return True
    return False


def _equal(wanted: Sequence[_Row], given: Sequence[_Row]) -> bool:
    return all(_alike(a, b) for w, g in zip(wanted, given, strict=True) for a, b in zip(w, g, strict=True))


def _alike(wanted: Cell, given: Cell) -> bool:
    if isinstance(wanted, int) and isinstance(given, int):
        return wanted == given
    if isinstance(wanted, int | float) and isinstance(given, int | float):
        try:
            near = math.isclose(wanted, given, rel_tol=CLOSE, abs_tol=1e-9)
        except OverflowError:  # an integer that is too large for a float
            return False
        # If one of the two is an integer, the other must round to the same integer: close is not enough.
        whole = isinstance(wanted, int) or isinstance(given, int)
        return near and (not whole or abs(wanted - given) < 0.5) if math.isfinite(given) else wanted == given
    return type(wanted) is type(given) and wanted == given


def _exact(value: Cell) -> tuple[int, float | str]:
    """A cell as a sort key: numbers by their value, then everything else."""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return 0, value
    return 1, repr(value)


def _rounded(value: Cell) -> tuple[int, float | str]:
    """A cell as a sort key: numbers that may count as equal mostly get the same key."""
    kind, number = _exact(value)
    try:
        return kind, number if isinstance(number, str) else float(f"{number:.5g}")
    except OverflowError:
        return kind, number


def _sorted(rows: Sequence[_Row], key: Callable[[Cell], tuple[int, float | str]]) -> list[_Row]:
    return sorted(rows, key=lambda row: [key(cell) for cell in row])


def _matchings(wanted: Sequence[_Row], given: Sequence[_Row]) -> Iterator[list[int]]:
    """Ways to assign the given columns to the wanted columns such that assigned columns hold the same values."""
    if not wanted:
        yield []
        return
    have, want = ([sorted(column, key=_exact) for column in zip(*rows, strict=True)] for rows in (given, wanted))
    options = [[i for i, column in enumerate(have) if all(map(_alike, needed, column))] for needed in want]
    tried = 0

    def extend(chosen: list[int]) -> Iterator[list[int]]:
        nonlocal tried
        if len(chosen) == len(options):
            tried += 1
            yield chosen
            return
        for i in options[len(chosen)]:
            if i not in chosen and tried < MATCHINGS:
                yield from extend([*chosen, i])

    yield from extend([])

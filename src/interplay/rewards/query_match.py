"""Whether two query results are equal: columns in any order, and rows in any order unless the query orders them.

Integers are compared exactly, and decimal numbers with a relative tolerance of 1e-6.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from interplay.execution.query import Cell, QueryResult

CLOSE = 1e-6
MATCHINGS = 1_000  # the largest number of column orders that are tried
_Row = tuple[Cell, ...]


def same(gold: QueryResult, other: QueryResult, ordered: bool = False) -> bool:
    """Whether two results are equal. A result that failed equals no other."""
    if gold.error or other.error or len(gold.rows) != len(other.rows) or len(gold.columns) != len(other.columns):
        return False
    wanted = list(gold.rows) if ordered else sorted(gold.rows, key=_place)
    for order in _matchings(gold.rows, other.rows):
        given = [tuple(row[i] for i in order) for row in other.rows]
        given = given if ordered else sorted(given, key=_place)
        if all(_alike(a, b) for w, g in zip(wanted, given, strict=True) for a, b in zip(w, g, strict=True)):
            return True
    return False


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


def _rounded(value: Cell) -> Cell:
    """A cell as a sort key: numbers that may count as equal mostly get the same key."""
    if isinstance(value, int | float) and not (isinstance(value, float) and not math.isfinite(value)):
        try:
            return float(f"{value:.5g}")
        except OverflowError:
            return value
    return value


def _place(row: _Row) -> list[str]:
    return [repr(_rounded(cell)) for cell in row]


def _matchings(wanted: Sequence[_Row], given: Sequence[_Row]) -> Iterator[list[int]]:
    """Ways to assign the given columns to the wanted columns such that assigned columns hold the same values."""
    if not wanted:
        yield []
        return
    have, want = (
        [Counter(repr(_rounded(cell)) for cell in column) for column in zip(*rows, strict=True)]
        for rows in (given, wanted)
    )
    options = [[i for i, values in enumerate(have) if values == column] for column in want]
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

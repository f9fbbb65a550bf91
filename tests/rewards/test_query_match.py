"""Results of queries are compared by their contents."""

from __future__ import annotations

from interplay.execution.query import QueryResult
from interplay.rewards.query_match import same


def table(*rows: tuple[object, ...]) -> QueryResult:
    return QueryResult(tuple(f"c{i}" for i in range(len(rows[0]) if rows else 1)), rows)  # type: ignore[arg-type]


def test_results_are_compared_by_what_they_say() -> None:
    gold = table((1, "a"), (2, "b"), (2, "b"))
    assert same(gold, table((2, "b"), (1, "a"), (2, "b")))
    assert same(gold, table(("b", 2), ("b", 2), ("a", 1))), "columns in any order"
    assert same(gold, table((1.0, "a"), (2.0000000001, "b"), (2, "b")))
    assert not same(gold, table((1, "a"), (2, "b"))), "a multiset, not a set"
    assert not same(gold, table((1, "b"), (2, "a"), (2, "b"))), "rows belong together"
    assert not same(gold, table((1, "a", 0), (2, "b", 0), (2, "b", 0))), "nothing more than was asked for"
    assert not same(gold, table(("1", "a"), ("2", "b"), ("2", "b"))), "text is no number"
    assert not same(gold, table((None, "a"), (2, "b"), (2, "b")))
    assert not same(gold, QueryResult(error="x")) and not same(QueryResult(error="x"), QueryResult(error="x"))
    assert same(table((12345678,)), table((12345678.0,)))


def test_order_counts_where_it_is_asked_for() -> None:
    gold = table((1, "a"), (2, "b"), (3, "c"))
    assert same(gold, table(("a", 1), ("b", 2), ("c", 3)), ordered=True)
    assert not same(gold, table((3, "c"), (2, "b"), (1, "a")), ordered=True)


def test_columns_that_look_alike_are_still_told_apart() -> None:
    wide = [tuple((i * j) % 3 for j in range(12)) for i in range(9)]
    assert same(table(*wide), table(*[row[::-1] for row in wide]))


def test_rows_of_large_integers_may_come_in_any_order() -> None:
    """Their sort keys were rounded to five digits, so a right query that returned them in another order was refused."""
    assert same(table((1000001,), (1000002,)), table((1000002,), (1000001,)))
    assert same(table((1000001, 7), (1000002, 3)), table((3, 1000002), (7, 1000001)))
    assert not same(table((1000001, 7), (1000002, 3)), table((1000002, 7), (1000001, 3)))
    assert not same(table((1000001,), (1000002,)), table((1000001,), (1000003,)))
    assert not same(table((12345678,)), table((12345679.0,))), "close is not enough for a whole number"


def test_decimals_at_the_edge_of_rounding_are_the_same() -> None:
    assert same(table((12345.5,), (1.0,)), table((1.0,), (12345.499999999998,)))
    assert same(table((0.1 + 0.2, "b"), (0.3, "a")), table((0.3, "b"), (0.3, "a")))

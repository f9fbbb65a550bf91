"""Generates questions in words with their gold query, for any database, from its schema and contents.

Each question has a pattern: counts, sums, averages, extremes, groups, the first few in an order, or counts over a
foreign key. A question is kept only if its gold result is small and not empty, so that an empty answer is never right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from interplay.execution.database import ask, tables
from interplay.execution.query import Cell, Column, QueryResult, quoted

DatabaseQuestion = dict[str, Any]  # question, sql (a list of gold queries), ordered
DrawQuestion = Callable[["Place"], DatabaseQuestion | None]
LARGEST = 50  # the largest number of rows in a gold result


class Place:
    """A table for questions, and the random generator."""

    def __init__(self, data: bytes, name: str, rng: random.Random) -> None:
        self.data, self.name, self.rng, self.columns = data, name, rng, tables(data)[name]
        self.table = quoted(name)

    def pick(self, *kinds: str) -> Column | None:
        """A column of one of these kinds that is not a key."""
        fitting = [c for c in self.columns if not c.key and c.refers is None and kind_of(c) in kinds]
        return self.rng.choice(fitting) if fitting else None

    def value(self, column: Column) -> Cell:
        """A value that occurs in the column."""
        cell = quoted(column.name)
        found = ask(
            self.data, f"SELECT DISTINCT {cell} FROM {self.table} WHERE {cell} IS NOT NULL ORDER BY 1 LIMIT 500"
        )
        return self.rng.choice(found.rows)[0] if found.rows else None


def kind_of(column: Column) -> str:
    """`number`, `text` or `other`, by the declared type. Columns whose names end in "id" are not quantities."""
    declared = column.type.upper()
    if column.name.lower().endswith("id") or any(t in declared for t in ("BLOB", "DATE", "TIME", "BOOL")):
        return "other"
    if any(t in declared for t in ("INT", "REAL", "NUM", "DEC", "FLOA", "DOUB")):
        return "number"
    return "text" if any(t in declared for t in ("CHAR", "TEXT", "CLOB")) else "other"


def literal(value: Cell) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _asked(question: str, sql: str, ordered: bool = False) -> DatabaseQuestion:
    return {"question": question, "sql": [sql], "ordered": ordered}


def _count(p: Place) -> DatabaseQuestion | None:
    column = p.pick("text", "number")
    if column is None or (value := p.value(column)) is None:
        return None
    cell = quoted(column.name)
    if kind_of(column) == "text":
        return _asked(
            f"How many rows of {p.name} have {column.name} equal to {literal(value)}?",
            f"SELECT count(*) FROM {p.table} WHERE {cell} = {literal(value)}",
        )
    word, sign = p.rng.choice((("more than", ">"), ("less than", "<"), ("at least", ">=")))
    return _asked(
        f"How many rows of {p.name} have a {column.name} of {word} {literal(value)}?",
        f"SELECT count(*) FROM {p.table} WHERE {cell} {sign} {literal(value)}",
    )


def _aggregate(p: Place) -> DatabaseQuestion | None:
    number, by = p.pick("number"), p.pick("text")
    if number is None:
        return None
    word, function = p.rng.choice((("total", "sum"), ("average", "avg"), ("largest", "max"), ("smallest", "min")))
    select = f"{function}({quoted(number.name)}) FROM {p.table}"
    if by is None or p.rng.random() < 0.4:
        return _asked(f"What is the {word} {number.name} in {p.name}?", f"SELECT {select}")
    if p.rng.random() < 0.5 and (value := p.value(by)) is not None:
        return _asked(
            f"What is the {word} {number.name} of the rows of {p.name} whose {by.name} is {literal(value)}?",
            f"SELECT {select} WHERE {quoted(by.name)} = {literal(value)}",
        )
    return _asked(
        f"What is the {word} {number.name} for each {by.name} in {p.name}? Give {by.name} and the value.",
        f"SELECT {quoted(by.name)}, {select} GROUP BY {quoted(by.name)}",
    )


def _distinct(p: Place) -> DatabaseQuestion | None:
    column = p.pick("text")
    if column is None:
        return None
    cell = quoted(column.name)
    if p.rng.random() < 0.5:
        return _asked(
            f"How many different values of {column.name} are there in {p.name}?",
            f"SELECT count(DISTINCT {cell}) FROM {p.table}",
        )
    return _asked(
        f"Which values of {column.name} are there in {p.name}? Give each once, in alphabetical order.",
        f"SELECT DISTINCT {cell} FROM {p.table} ORDER BY 1",
        ordered=True,
    )


def _top(p: Place) -> DatabaseQuestion | None:
    number, shown, key = p.pick("number"), p.pick("text"), next((c for c in p.columns if c.key), None)
    if number is None or shown is None or key is None:
        return None
    count, (word, way) = p.rng.randint(2, 5), p.rng.choice((("largest", "DESC"), ("smallest", "ASC")))
    return _asked(
        f"List {shown.name} and {number.name} of the {count} rows of {p.name} with the {word} {number.name}, in that "
        f"order; rows that tie are ordered by {key.name}.",
        f"SELECT {quoted(shown.name)}, {quoted(number.name)} FROM {p.table} "
        f"ORDER BY {quoted(number.name)} {way}, {quoted(key.name)} LIMIT {count}",
        ordered=True,
    )


def _linked(p: Place) -> DatabaseQuestion | None:
    links = [c for c in p.columns if c.refers is not None and c.refers[0] in tables(p.data)]
    if not links:
        return None
    link = p.rng.choice(links)
    assert link.refers is not None
    other = Place(p.data, link.refers[0], p.rng)
    key = link.refers[1] or next((c.name for c in other.columns if c.key), None)
    shown = other.pick("text")
    if key is None or shown is None:
        return None
    joined = f"FROM {p.table} AS a JOIN {other.table} AS b ON a.{quoted(link.name)} = b.{quoted(key)}"
    number = p.pick("number")
    if number is not None and p.rng.random() < 0.5:
        return _asked(
            f"For each {shown.name} of {other.name}, what is the total {number.name} of the rows of {p.name} that "
            f"refer to it by {link.name}? Give {shown.name} and the total; leave out those without any.",
            f"SELECT b.{quoted(shown.name)}, sum(a.{quoted(number.name)}) {joined} GROUP BY b.{quoted(shown.name)}",
        )
    if (value := other.value(shown)) is None:
        return None
    return _asked(
        f"How many rows of {p.name} refer by {link.name} to a {other.name} whose {shown.name} is {literal(value)}?",
        f"SELECT count(*) {joined} WHERE b.{quoted(shown.name)} = {literal(value)}",
    )


PATTERNS: dict[str, DrawQuestion] = {
    "count": _count,
    "aggregate": _aggregate,
    "distinct": _distinct,
    "top": _top,
    "linked": _linked,
}


def draw(
    data: bytes, rng: random.Random, patterns: tuple[str, ...], mine: Callable[[str], bool]
) -> DatabaseQuestion | None:
    """A question that is `mine` and that this database can answer; None if this draw gave no such question."""
    place = Place(data, rng.choice(sorted(tables(data))), rng)
    pattern = rng.choice(patterns)
    made = PATTERNS[pattern](place)
    if made is None or not mine(made["question"]):
        return None
    gold = ask(data, made["sql"][0])
    return {**made, "pattern": pattern} if telling(gold) and len(gold.rows) <= LARGEST else None


def telling(gold: QueryResult) -> bool:
    """Whether a result says something: it is not empty, and not all NULL or zero."""
    return not gold.error and any(cell not in (None, 0, 0.0, "") for row in gold.rows for cell in row)

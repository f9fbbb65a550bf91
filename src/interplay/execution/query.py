"""The result of a query and the columns of a table, the same for every kind of database."""

from __future__ import annotations

from dataclasses import dataclass

Cell = int | float | str | bytes | None


@dataclass(frozen=True)
class QueryResult:
    """The result of a query. If there is none, `error` says why."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    error: str = ""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    key: bool  # part of the primary key
    refers: tuple[str, str] | None = None  # the table and column that it refers to

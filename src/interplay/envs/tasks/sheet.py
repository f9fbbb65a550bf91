"""Tables from CSV and Parquet files, as one SQLite table named `sheet`, so that questions can have gold queries.

CSV is read with the standard library. A column holds numbers if every cell that is not empty is a number. Parquet is
read with pyarrow.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from interplay.errors import ConfigError, DataError
from interplay.execution.database import build
from interplay.execution.query import Cell, quoted

NAME = "sheet"
LARGEST = 100_000  # the largest number of rows in a file


def database(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> bytes:
    """The table with column types from its cells. The first column of distinct whole numbers becomes its key."""
    columns_of = [[row[i] for row in rows] for i in range(len(header))]
    types = [_type(cells) for cells in columns_of]
    unique = (i for i, cells in enumerate(columns_of) if types[i] == "INTEGER" and len({*cells, None}) > len(cells))
    if (key := next(unique, None)) is not None:
        types[key] = "INTEGER PRIMARY KEY"
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(header, types, strict=True))
    return build(f"CREATE TABLE {NAME} ({columns});", {NAME: rows})


def _type(cells: Sequence[Cell]) -> str:
    filled = [c for c in cells if c is not None]
    if filled and all(isinstance(c, int) for c in filled):
        return "INTEGER"
    return "REAL" if filled and all(isinstance(c, int | float) for c in filled) else "TEXT"


def text(header: Sequence[str], rows: Sequence[Sequence[Cell]], limit: int) -> str:
    """The first `limit` rows of the table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows[:limit])
    return out.getvalue() + (f"… ({len(rows)} rows)\n" if len(rows) > limit else "")


def read(path: str) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    """Header and rows of a CSV or Parquet file."""
    file = Path(path)
    try:
        return _read(file, file.stat().st_mtime_ns)
    except OSError as error:
        raise ConfigError(
            f"env.file is '{path}', which cannot be read: {error.strerror}; expected a CSV or Parquet file."
        ) from None


@lru_cache(maxsize=16)
def _read(file: Path, stamp: int) -> tuple[tuple[str, ...], tuple[tuple[Cell, ...], ...]]:
    header, rows = _parquet(file) if file.suffix == ".parquet" else _csv(file)
    if not rows or len(rows) > LARGEST or len(set(map(str.lower, header))) != len(header):
        raise DataError(
            f"'{file}' has {len(rows):,} rows; expected 1 to {LARGEST:,}, and columns with different names."
        )
    return tuple(header), tuple(tuple(row) for row in rows)


def _csv(file: Path) -> tuple[list[str], list[list[Cell]]]:
    try:
        header, *lines = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8-sig"))))
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise DataError(f"'{file}' is not a CSV file: {error}.") from None
    for n, line in enumerate(lines, 2):
        if len(line) != len(header):
            raise DataError(f"'{file}' line {n} has {len(line)} cells; expected {len(header)}.")
    columns = [_numbers(column) for column in zip(*lines, strict=True)]
    return header, [list(row) for row in zip(*columns, strict=True)]


def _numbers(cells: Sequence[str]) -> list[Cell]:
    """The cells of a column as numbers, if all that are not empty can be numbers. Empty cells become None."""
    filled = [None if not c.strip() else c.strip() for c in cells]
    for kind in (int, float):
        try:
            return [None if c is None else kind(c.replace(",", "")) for c in filled]
        except ValueError:
            continue
    return list(filled)


def _parquet(file: Path) -> tuple[list[str], list[list[Cell]]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f"reading '{file.name}' needs pyarrow: pip install 'interplay[data]'.") from None
    try:
        table = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"'{file}' is not a Parquet file: {error}.") from None
    plain = lambda c: c if c is None or isinstance(c, int | float | str) else str(c)  # noqa: E731
    return list(table.column_names), [[plain(c) for c in row.values()] for row in table.to_pylist()]

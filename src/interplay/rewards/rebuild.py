"""Reads a SQLite or DuckDB database into memory, and builds it again with other rows."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from interplay.errors import ConfigError
from interplay.execution import database
from interplay.execution.query import Cell, quoted

CHUNK = 100  # rows per statement, because one statement takes DuckDB the same time for one row as for many
Contents = Mapping[str, Sequence[tuple[Cell, ...]]]  # rows by table


def contents(data: bytes, most: int) -> Contents | None:
    """The first rows of every table; None if they cannot be read."""
    names = list(database.tables(data))
    if database.is_duck(data):
        return _with_duck(data, lambda db: {name: db.execute(_select(name, most)).fetchall() for name in names})
    with closing(_sqlite(data)) as db:
        try:
            return {name: db.execute(_select(name, most)).fetchall() for name in names}
        except sqlite3.Error:
            return None


def rebuilt(data: bytes, rows: Contents) -> bytes | None:
    """The same tables, views and indexes with these rows; None if the schema does not allow the rows."""
    if database.is_duck(data):
        return _rebuilt_duck(data, rows)
    with closing(_sqlite(data)) as db:
        wanted = (
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND type IN ('table', 'view', 'index') ORDER BY rowid"
        )
        script = [sql for (sql,) in db.execute(wanted) if not sql.startswith("CREATE TABLE sqlite_")]
    try:
        return database.build(";\n".join([*script, ""]), {name: list(part) for name, part in rows.items()})
    except (sqlite3.Error, OverflowError):
        return None


def _select(name: str, most: int) -> str:
    return f"SELECT * FROM {quoted(name)} LIMIT {most}"


def _sqlite(data: bytes) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    if data[18:20] == b"\x02\x02":  # a database with a write-ahead log; a copy in memory cannot have such a log
        data = data[:18] + b"\x01\x01" + data[20:]
    db.deserialize(data)
    return db


def _library() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ConfigError("a DuckDB database needs the duckdb package: pip install 'interplay[duckdb]'.") from None
    return duckdb


def _with_duck(data: bytes, use: Any) -> Any:
    library = _library()
    with tempfile.TemporaryDirectory(prefix="interplay-duckdb-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "old.duckdb"
        file.write_bytes(data)
        try:
            with closing(library.connect(str(file), read_only=True)) as db:
                return use(db)
        except library.Error:
            return None


def _rebuilt_duck(data: bytes, rows: Contents) -> bytes | None:
    library = _library()
    wanted = (
        "SELECT sql FROM duckdb_tables() WHERE NOT internal UNION ALL SELECT sql FROM duckdb_views() WHERE NOT internal"
    )
    script = _with_duck(data, lambda db: [sql for (sql,) in db.execute(wanted).fetchall()])
    if script is None:
        return None
    with tempfile.TemporaryDirectory(prefix="interplay-duckdb-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "new.duckdb"
        try:
            with closing(library.connect(str(file))) as db:
                for sql in script:
                    db.execute(sql)
                for name, part in rows.items():
                    for start in range(0, len(part), CHUNK):
                        some = part[start : start + CHUNK]
                        marks = ", ".join(f"({', '.join('?' * len(row))})" for row in some)
                        db.execute(f"INSERT INTO {quoted(name)} VALUES {marks}", [cell for row in some for cell in row])
                db.execute("CHECKPOINT")
        except library.Error:
            return None
        return file.read_bytes()

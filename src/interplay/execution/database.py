"""Runs untrusted queries on real SQLite and DuckDB databases: read-only, limited and deterministic.

A database is given as its bytes. `run` runs a query that a model wrote, in a service inside the sandbox (`sqlite.py`,
`duck.py`). Each query has its own process, which cannot change anything that a later query reads. `ask` runs our own
queries in this process; tasks are made with thousands of them. If a query fails, `QueryResult.error` says why.

`rewards/query_match.py` compares results, and `rewards/shadow.py` makes databases with the same schema and other
contents.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interplay.errors import ConfigError, DataError
from interplay.execution import sqlite
from interplay.execution.job import Limits, RunResult
from interplay.execution.query import Cell, Column, QueryResult, quoted
from interplay.execution.services import LibraryQuestion, service

STEPS = 20_000_000  # steps of SQLite's virtual machine in one query
SECONDS = 5.0  # processor time of one query, because a single step can be slow and DuckDB counts no steps
ROWS = 10_000
TEXT = 20_000  # the largest number of characters of a query
MEMORY = 2048.0  # megabytes for the process that answers one query
RESULT = 65_536.0  # kilobytes of a result
BUSY = 10.0  # wall-clock seconds per second of processor time, because machines may be busy
_ENDS = {
    "timeout": "it took too long", "memory": "it took too much memory", "output": "its result is too large",
    "killed": "it ended the database", "disk": "it filled the disk", "processes": "it started processes",
}  # fmt: skip
_NOW = re.compile(
    r"""['"]\s*now\s*['"]|\b(?:date|time|datetime|julianday|unixepoch)\s*\(\s*\)|\bstrftime\s*\(\s*'[^']*'\s*\)""", re.I
)


def read(path: str | Path) -> bytes:
    """Read a database from a file."""
    file = Path(path)
    try:
        return _read(file, file.stat().st_mtime_ns)
    except OSError as error:
        raise DataError(f"'{file}' cannot be read as a database: {error.strerror}.") from None


@lru_cache(maxsize=64)
def _read(file: Path, stamp: int) -> bytes:
    data = file.read_bytes()
    if is_duck(data):
        if why := _duck(data, "check"):
            raise DataError(f"the file is not a DuckDB database that this version can read: {why}.")
        return data
    if not data.startswith(b"SQLite format 3\0"):
        raise DataError(f"'{file}' is not a database; expected a file of SQLite or DuckDB.")
    with closing(_open(data)) as db:
        try:
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return db.serialize()
        except sqlite3.DatabaseError as error:
            raise DataError(f"'{file}' is not a SQLite database: {error}.") from None


def is_duck(data: bytes) -> bool:
    return data[8:12] == b"DUCK"


def dialect(data: bytes) -> str:
    return "DuckDB" if is_duck(data) else "SQLite"


def build(script: str, rows: dict[str, Sequence[Sequence[Cell]]]) -> bytes:
    """Make a database from its CREATE statements and the rows of its tables."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(script)
        for table, values in rows.items():
            if values:
                db.executemany(f"INSERT INTO {quoted(table)} VALUES ({', '.join('?' * len(values[0]))})", values)
        db.commit()
        return db.serialize()


def _open(data: bytes) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    db.deserialize(_plain(data))
    return db


def _plain(data: bytes) -> bytes:
    """Remove the mark of a write-ahead log from the header, because there is no such log here."""
    return data[:18] + b"\x01\x01" + data[20:] if data[18:20] == b"\x02\x02" else data


def run(data: bytes, query: str, rows: int = ROWS) -> QueryResult:
    """Run one untrusted query."""
    if why := _unread(query):
        return QueryResult(error=why)
    if is_duck(data):
        return _result(_ask_duck(data, {"task": "query", "query": query, "rows": rows}))
    asked = {"file": _name(data), "query": query, "rows": rows, "steps": STEPS}
    limits = Limits(BUSY * SECONDS, SECONDS, MEMORY, output_kb=RESULT)
    return _result(
        service("interplay.execution.sqlite").ask(LibraryQuestion(asked, {_name(data): _plain(data)}, limits))
    )


def ask(data: bytes, query: str, rows: int = ROWS) -> QueryResult:
    """Run one of our own queries: one that makes a task, or the gold query of a data set."""
    if is_duck(data):
        return run(data, query, rows)
    if why := _unread(query):
        return QueryResult(error=why)
    with closing(_open(data)) as db:
        columns, found, error = sqlite.select(db, query, rows, STEPS)
    return QueryResult(tuple(columns), tuple(found), error)


def _unread(query: str) -> str:
    """Why a query is refused before it is parsed; empty if it is not."""
    if len(query) > TEXT:
        return f"the query has {len(query):,} characters; at most {TEXT:,} are read"
    if "\0" in query:
        return "the query holds a character that SQL does not"
    return "the present time is not known here" if timely(query) else ""


def _result(result: RunResult) -> QueryResult:
    if not result.ok:
        return QueryResult(error=_ENDS.get(result.status, result.stdout[:200]))
    try:
        said = json.loads(result.output)
        found = tuple(tuple(bytes.fromhex(c[0]) if isinstance(c, list) else c for c in row) for row in said["rows"])
        return QueryResult(tuple(said["columns"]), found, said["error"])
    except (ValueError, KeyError, TypeError, IndexError):
        return QueryResult(error="its result cannot be read")


@lru_cache(maxsize=256)
def _name(data: bytes) -> str:
    """The name under which a service keeps the database."""
    return hashlib.sha256(data).hexdigest()


def _ask_duck(data: bytes, asked: dict[str, Any], ours: bool = False) -> RunResult:
    if find_spec("duckdb") is None:
        raise ConfigError("a DuckDB database needs the duckdb package: pip install 'interplay[duckdb]'.")
    limits = Limits(BUSY * SECONDS, SECONDS, MEMORY, output_kb=RESULT if not ours else 1 << 22)
    question = LibraryQuestion({**asked, "file": _name(data)}, {_name(data): data}, limits, ours)
    return service("interplay.execution.duck").ask(question)


def _duck(data: bytes, task: str, **asked: Any) -> Any:
    """Ask one of our own questions, which must be answered."""
    result = _ask_duck(data, {"task": task, **asked}, ours=True)
    if not result.ok:
        raise DataError(f"DuckDB cannot read the database: {result.status} {result.stdout[:200]}".strip() + ".")
    return json.loads(result.output)


def timely(query: str) -> bool:
    """Whether a query uses the current time, whose value differs each time."""
    return bool(_NOW.search(query))


# -- results as text --------------------------------------------------------------------------------------------------


def text(result: QueryResult, rows: int) -> str:
    """A result as text, for people and models."""
    if result.error:
        return f"error: {result.error}"
    lines = [" | ".join(result.columns)]
    lines += [" | ".join("NULL" if c is None else str(c) for c in row) for row in result.rows[:rows]]
    if len(result.rows) > rows:
        lines.append(f"… ({len(result.rows)} rows)")
    return "\n".join(lines)


# -- schema and contents ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def tables(data: bytes) -> dict[str, tuple[Column, ...]]:
    """All tables with their columns, in the order in which they were created."""
    if is_duck(data):
        return {
            table: tuple(Column(c["name"], c["type"], c["key"], c["refers"] and tuple(c["refers"])) for c in columns)
            for table, columns in _duck(data, "tables").items()
        }
    with closing(_open(data)) as db:
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")]
        found = {}
        for name in (n for n in names if not n.startswith("sqlite_")):
            links = {r[3]: (r[2], r[4]) for r in db.execute(f"PRAGMA foreign_key_list({quoted(name)})")}
            columns = db.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
            found[name] = tuple(Column(c[1], c[2], bool(c[5]), links.get(c[1])) for c in columns)
        return found


def schema(data: bytes) -> str:
    """The schema, one line per table."""
    lines = []
    for name, columns in tables(data).items():
        parts = [
            f"{c.name} {c.type}".strip() + (f" -> {c.refers[0]}" if c.refers else " key" if c.key else "")
            for c in columns
        ]
        lines.append(f"{name}({', '.join(parts)})")
    return "\n".join(lines)

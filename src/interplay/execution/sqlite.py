"""Queries on a SQLite database: read-only, limited, repeatable. Queries that models wrote run inside a service.

An authorizer allows only statements that read. Work is limited in steps of SQLite's virtual machine, not in seconds, so
that the limit is the same on every machine. Rows, text and memory are limited too. Random functions and the clock are
refused. A single step that takes too long is ended by the processor-time limit of the service.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
from contextlib import closing
from typing import Any

VALUE = 1_000_000  # the largest number of bytes in one value
MEMORY = 512 * 1024 * 1024  # bytes for all of SQLite
_TICK = 1_000
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_CHANCE = {"random", "randomblob", "load_extension", "current_date", "current_time", "current_timestamp"}
_REPEATED = re.compile(r"%[-+ 0#,!]*(?:\*|\d+)?\.(?:\*|\d+)l*c")  # repeats a character any number of times in one step


def prepare() -> None:
    sqlite3.connect(":memory:").close()


def probe() -> tuple[Any, Any]:
    asked = {"file": ":memory:", "query": "SELECT 1", "rows": 1, "steps": 1000}
    return asked, {"columns": ["1"], "rows": [[1]], "error": ""}


def answer(text: bytes) -> bytes:
    """The question has `file`, `query` and the limits `rows` and `steps`. The answer has `columns`, `rows`, `error`."""
    asked = json.loads(text)
    with closing(_opened(asked["file"])) as db:
        columns, rows, error = select(db, asked["query"], asked["rows"], asked["steps"])
    return json.dumps({"columns": columns, "rows": [[*map(_cell, row)] for row in rows], "error": error}).encode()


def _cell(value: Any) -> Any:
    """A value as JSON. Bytes become a list with their hexadecimal digits."""
    return [value.hex()] if isinstance(value, bytes) else value


def _opened(file: str) -> sqlite3.Connection:
    """Open the file without a copy, because nobody can write to it."""
    return sqlite3.connect(f"file:{file}?mode=ro&immutable=1" if file != ":memory:" else file, uri=True)


def select(db: sqlite3.Connection, query: str, rows: int, steps: int) -> tuple[list[str], list[Any], str]:
    """The columns, the rows, and what went wrong. The connection cannot be used afterwards."""
    spent = itertools.count(1)
    refused: list[str] = []  # reasons, in words
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as plain:
        plain.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
        _limit(db)
        _replace_printf(db, plain, refused)
        _let_nothing_through_but_reading(db, refused)
        db.set_progress_handler(lambda: next(spent) * _TICK > steps, _TICK)
        try:
            cursor = db.execute(query)
            given = cursor.fetchmany(rows + 1)
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError, UnicodeError) as error:
            why = refused[0] if refused else "it took too long" if "interrupted" in str(error) else str(error)
            return [], [], why or type(error).__name__
        if cursor.description is None:
            return [], [], "it is no query"
        if len(given) > rows:
            return [], [], f"it gives more than {rows:,} rows"
        return [str(d[0]) for d in cursor.description], given, ""


def _limit(db: sqlite3.Connection) -> None:
    db.execute(f"PRAGMA hard_heap_limit={MEMORY}")
    db.execute("PRAGMA temp_store=MEMORY")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)


def _let_nothing_through_but_reading(db: sqlite3.Connection, refused: list[str]) -> None:
    def allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        chance = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _CHANCE
        if action in _READING and not chance:
            return sqlite3.SQLITE_OK
        refused.append(f"{second}() is not allowed" if chance else "only reading is allowed, by one SELECT")
        return sqlite3.SQLITE_DENY

    db.set_authorizer(allowed)


def _replace_printf(db: sqlite3.Connection, plain: sqlite3.Connection, refused: list[str]) -> None:
    """Replace printf by a version that refuses to repeat a character without limit."""

    def printf(form: Any = None, *given: Any) -> Any:
        if _REPEATED.search(str(form)):
            refused.append("printf() with a repeated character is not allowed")
            raise ValueError
        return plain.execute(f"SELECT printf(?{', ?' * len(given)})", (form, *given)).fetchone()[0]

    for name in ("printf", "format"):
        db.create_function(name, -1, printf, deterministic=True)

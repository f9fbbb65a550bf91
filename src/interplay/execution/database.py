"""Queries that nobody trusts, on real SQLite databases held in memory: read-only, limited, and the same every time.

A database is its bytes; where DuckDB wrote them, `duck.py` answers. Every SQLite query runs on a copy of its own. An
authorizer lets nothing through but reading, the work is limited in steps of SQLite's virtual machine (not in seconds,
so that a limit falls at the same place on every machine), and rows, text and memory are limited too. Chance and the
clock are refused. What went wrong is a sentence in `QueryResult.error`.

`same` compares results: rows as a multiset, or in order where the question asks for one; columns in any order; numbers
to six digits. A result can be known without knowing the query (`SELECT 42`): `shadow` makes a database with the same
schema and other contents, on which a right query is still right.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from interplay.errors import DataError
from interplay.execution.query import Cell, Column, QueryResult, quoted

STEPS = 20_000_000  # of the virtual machine, in one query
SECONDS = 30.0  # on the wall, for what single steps can cost
ROWS = 10_000
TEXT = 20_000  # characters of a query
VALUE = 1_000_000  # bytes of one value
MEMORY = 512 * 1024 * 1024  # bytes for all of SQLite in this process
_TICK = 1_000

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_CHANCE = {"random", "randomblob", "load_extension", "current_date", "current_time", "current_timestamp"}
_REPEATED = re.compile(r"%[-+ 0#,!]*(?:\*|\d+)?\.(?:\*|\d+)l*c")  # a character as often as it says: one long step
_NOW = re.compile(
    r"""['"]\s*now\s*['"]|\b(?:date|time|datetime|julianday|unixepoch)\s*\(\s*\)|\bstrftime\s*\(\s*'[^']*'\s*\)""", re.I
)


def read(path: str | Path) -> bytes:
    """The database in a file."""
    file = Path(path)
    try:
        return _read(file, file.stat().st_mtime_ns)
    except OSError as error:
        raise DataError(f"'{file}' cannot be read as a database: {error.strerror}.") from None


@lru_cache(maxsize=64)
def _read(file: Path, stamp: int) -> bytes:
    data = file.read_bytes()
    if is_duck(data):
        _duck().check(data)
        return data
    if not data.startswith(b"SQLite format 3\0"):
        raise DataError(f"'{file}' is no SQLite or DuckDB database.")
    with closing(_open(data)) as db:
        try:
            db.execute("PRAGMA journal_mode=DELETE")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return db.serialize()
        except sqlite3.DatabaseError as error:
            raise DataError(f"'{file}' is no SQLite database: {error}.") from None


def is_duck(data: bytes) -> bool:
    return data[8:12] == b"DUCK"


def dialect(data: bytes) -> str:
    return "DuckDB" if is_duck(data) else "SQLite"


def _duck() -> ModuleType:
    from interplay.execution import duck

    return duck


def build(script: str, rows: dict[str, Sequence[Sequence[Cell]]]) -> bytes:
    """A database from its CREATE statements and the rows of its tables."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(script)
        for table, values in rows.items():
            if values:
                db.executemany(f"INSERT INTO {quoted(table)} VALUES ({', '.join('?' * len(values[0]))})", values)
        db.commit()
        return db.serialize()


def _open(data: bytes) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", check_same_thread=False)
    if data[18:20] == b"\x02\x02":  # written with a write-ahead log, which a copy in memory cannot have
        data = data[:18] + b"\x01\x01" + data[20:]
    db.deserialize(data)
    return db


def run(data: bytes, query: str, rows: int = ROWS) -> QueryResult:
    """One query on a copy of the database."""
    if len(query) > TEXT:
        return QueryResult(error=f"the query has {len(query):,} characters; at most {TEXT:,} are read")
    if "\0" in query:
        return QueryResult(error="the query holds a character that SQL does not")
    if timely(query):
        return QueryResult(error="the present time is not known here")
    if is_duck(data):
        found: QueryResult = _duck().run(data, query, rows)
        return found
    with closing(_open(data)) as db, closing(sqlite3.connect(":memory:", check_same_thread=False)) as plain:
        plain.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
        db.execute(f"PRAGMA hard_heap_limit={MEMORY}")
        db.execute("PRAGMA temp_store=MEMORY")
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE)
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        db.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000)
        spent, began = itertools.count(1), time.monotonic()
        refused: list[str] = []

        def tick() -> bool:
            return next(spent) * _TICK > STEPS or time.monotonic() - began > SECONDS

        def allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
            chance = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _CHANCE
            if action in _READING and not chance:
                return sqlite3.SQLITE_OK
            refused.append(f"{second}() is not allowed" if chance else "only reading is allowed, by one SELECT")
            return sqlite3.SQLITE_DENY

        def printf(form: Cell = None, *given: Cell) -> Cell:
            if _REPEATED.search(str(form)):
                refused.append("printf() with a repeated character is not allowed")
                raise ValueError
            value: Cell = plain.execute(f"SELECT printf(?{', ?' * len(given)})", (form, *given)).fetchone()[0]
            return value

        for name in ("printf", "format"):
            db.create_function(name, -1, printf, deterministic=True)
        db.set_progress_handler(tick, _TICK)
        db.set_authorizer(allowed)
        try:
            cursor = db.execute(query)
            given = cursor.fetchmany(rows + 1)
        except (sqlite3.Error, sqlite3.Warning, OverflowError, MemoryError, UnicodeError) as error:
            why = refused[0] if refused else "it took too long" if "interrupted" in str(error) else str(error)
            return QueryResult(error=why or type(error).__name__)
        if cursor.description is None:
            return QueryResult(error="it is no query")
        if len(given) > rows:
            return QueryResult(error=f"it gives more than {rows:,} rows")
        return QueryResult(tuple(str(d[0]) for d in cursor.description), tuple(given))


def timely(query: str) -> bool:
    """Whether a query asks for the present, which is another one every time."""
    return bool(_NOW.search(query))


# -- comparing --------------------------------------------------------------------------------------------------------


def same(gold: QueryResult, other: QueryResult, ordered: bool = False) -> bool:
    """Whether two results are the same, their columns in any order."""
    if gold.error or other.error or len(gold.rows) != len(other.rows) or len(gold.columns) != len(other.columns):
        return False
    wanted, given = ([tuple(map(_cell, row)) for row in r.rows] for r in (gold, other))
    if not ordered:
        wanted = sorted(wanted, key=repr)
    for order in _matchings(wanted, given):
        arranged = [tuple(row[i] for i in order) for row in given]
        if (arranged if ordered else sorted(arranged, key=repr)) == wanted:
            return True
    return False


def _matchings(wanted: list[tuple[Cell, ...]], given: list[tuple[Cell, ...]], limit: int = 1000) -> Iterator[list[int]]:
    """Ways to put the given columns in the place of wanted ones, each column holding the same values."""
    if not wanted:
        yield []
        return
    have, want = ([Counter(map(repr, column)) for column in zip(*rows, strict=True)] for rows in (given, wanted))
    options = [[i for i, values in enumerate(have) if values == column] for column in want]
    tried = 0

    def extend(chosen: list[int]) -> Iterator[list[int]]:
        nonlocal tried
        if len(chosen) == len(options):
            tried += 1
            yield chosen
            return
        for i in options[len(chosen)]:
            if i not in chosen and tried < limit:
                yield from extend([*chosen, i])

    yield from extend([])


def _cell(value: Cell) -> Cell:
    if isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        value = float(f"{value:.6g}")
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, int) and abs(value) >= 10**6:  # so that 1234567 and 1234567.0 stay the same
        return int(float(f"{value:.6g}"))
    return value


def text(result: QueryResult, rows: int) -> str:
    """A result for people and models to read."""
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
    """Every table with its columns, in the order they were made."""
    if is_duck(data):
        listed: dict[str, tuple[Column, ...]] = _duck().tables(data)
        return listed
    with closing(_open(data)) as db:
        names = [r[0] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")]
        found = {}
        for name in (n for n in names if not n.startswith("sqlite_")):
            links = {r[3]: (r[2], r[4]) for r in db.execute(f"PRAGMA foreign_key_list({quoted(name)})")}
            columns = db.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
            found[name] = tuple(Column(c[1], c[2], bool(c[5]), links.get(c[1])) for c in columns)
        return found


def schema(data: bytes) -> str:
    """The schema on a line per table."""
    lines = []
    for name, columns in tables(data).items():
        parts = [
            f"{c.name} {c.type}".strip() + (f" -> {c.refers[0]}" if c.refers else " key" if c.key else "")
            for c in columns
        ]
        lines.append(f"{name}({', '.join(parts)})")
    return "\n".join(lines)


@lru_cache(maxsize=256)
def shadow(data: bytes, seed: int) -> bytes:
    """The same schema with other contents: about a third of the rows of every table are missing, and every other
    number that is no key is another one."""
    if is_duck(data):
        made: bytes = _duck().shadow(data, seed)
        return made
    rng = random.Random(seed)
    with closing(_open(data)) as db:
        db.execute("PRAGMA foreign_keys=OFF")
        for name, columns in tables(data).items():
            try:
                ids = [r[0] for r in db.execute(f"SELECT rowid FROM {quoted(name)}")]
            except sqlite3.OperationalError:  # a table WITHOUT ROWID stays as it is
                continue
            gone = [(i,) for i in ids if len(ids) > 2 and rng.random() < 1 / 3]
            db.executemany(f"DELETE FROM {quoted(name)} WHERE rowid = ?", gone)
            for c in columns:
                if not c.key and c.refers is None and not c.name.lower().endswith("id") and rng.random() < 0.5:
                    cell = quoted(c.name)
                    change = rng.randint(1, 5)
                    try:
                        db.execute(
                            f"UPDATE {quoted(name)} SET {cell} = {cell} + {change} * (rowid % 3) "
                            f"WHERE typeof({cell}) IN ('integer', 'real')"
                        )
                    except sqlite3.IntegrityError:
                        continue
        db.commit()
        return db.serialize()

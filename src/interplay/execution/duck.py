"""DuckDB databases behind `database.py`: the same functions for files that DuckDB wrote.

A database is the bytes of its file; they lie, once each, in a temporary folder and are opened read-only, without access
to any other file, to extensions, to its own settings or to a process's variables. Queries run in processes that can be
ended (`workers.py`): DuckDB counts no steps, does not heed its own limit of memory in a list of many numbers, nor an
interruption while it makes one. Rows, processor time and memory are limited, chance and the present refused by name.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interplay.errors import ConfigError, DataError
from interplay.execution import workers
from interplay.execution.query import Cell, Column, QueryResult, quoted

if TYPE_CHECKING:
    import duckdb

SECONDS = 10.0  # processor time of a query, by the worker's own watch
MEMORY = 2 << 30  # of a worker, DuckDB itself included
_LATE = "it took too long"
_WALLS = {
    "enable_external_access": "false", "autoinstall_known_extensions": "false", "autoload_known_extensions": "false",
    "python_enable_replacements": "false", "memory_limit": "512MB", "max_temp_directory_size": "0KB", "threads": "1",
    "lock_configuration": "true",
}  # fmt: skip
_CHANCE = re.compile(
    r"\b(random|setseed|uuid|uuidv\d|gen_random_uuid|now|today|get_current_\w+|transaction_timestamp|txid_current|"
    r"nextval|currval|current_setting|duckdb_\w+|pragma_\w+)\s*\(|"
    r"\b(current_date|current_time|current_timestamp|localtime|localtimestamp|tablesample|using\s+sample)\b",
    re.I,
)


def _library() -> Any:
    try:
        import duckdb
    except ImportError:
        raise ConfigError("a DuckDB database needs the duckdb package: pip install 'interplay[duckdb]'.") from None
    return duckdb


@lru_cache(maxsize=1)
def _folder() -> tempfile.TemporaryDirectory[str]:
    memory = "/dev/shm"  # where a file need not wait for a disk
    return tempfile.TemporaryDirectory(
        prefix="interplay-duckdb-", dir=memory if os.access(memory, os.W_OK) else None, ignore_cleanup_errors=True
    )


@lru_cache(maxsize=64)
def _file(data: bytes) -> Path:
    return Path(_folder().name) / f"{hashlib.sha256(data).hexdigest()}.duckdb"


def _connected(file: str) -> duckdb.DuckDBPyConnection:
    return _library().connect(file, read_only=True, config=_WALLS)


@lru_cache(maxsize=64)
def _opened(data: bytes) -> duckdb.DuckDBPyConnection:
    file = _file(data)
    if not file.exists():
        file.write_bytes(data)
    library = _library()
    try:
        return _connected(str(file))
    except library.Error as error:
        raise DataError(f"the file is no DuckDB database that this version reads: {_first(error)}.") from None


def check(data: bytes) -> None:
    """A DataError where the bytes are no database."""
    _opened(data).cursor().execute("SELECT 1").fetchone()


def run(data: bytes, query: str, rows: int) -> QueryResult:
    _opened(data)
    if found := _CHANCE.search(query):
        return QueryResult(error=f"{found[1] or found[2]} is not allowed")
    said = workers.pool(__name__).ask([str(_file(data)), query, rows, SECONDS], SECONDS)
    if isinstance(said, workers.Fate):
        return QueryResult(error=_LATE if said is workers.Fate.LATE else "it took too much memory")
    columns, lines, error = said
    return QueryResult(tuple(columns), tuple(tuple(map(_read, line)) for line in lines), error)


def _read(cell: Any) -> Cell:
    return bytes.fromhex(cell[0]) if isinstance(cell, list) else cell


def _first(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")


def tables(data: bytes) -> dict[str, tuple[Column, ...]]:
    cursor = _opened(data).cursor()
    links: dict[tuple[str, str], tuple[str, str]] = {}
    keys: set[tuple[str, str]] = set()
    for table, kind, names, other, theirs in cursor.execute(
        "SELECT table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names "
        "FROM duckdb_constraints()"
    ).fetchall():
        if kind == "PRIMARY KEY":
            keys |= {(table, name) for name in names}
        elif kind == "FOREIGN KEY":
            links |= {(table, n): (other, t) for n, t in zip(names, theirs, strict=True)}
    found: dict[str, tuple[Column, ...]] = {}
    for table, name, kind in cursor.execute(
        "SELECT c.table_name, c.column_name, c.data_type FROM duckdb_columns() c JOIN duckdb_tables() t USING "
        "(table_oid) WHERE NOT c.internal ORDER BY table_oid, column_index"
    ).fetchall():
        column = Column(name, kind, (table, name) in keys, links.get((table, name)))
        found[table] = (*found.get(table, ()), column)
    cursor.close()
    return found


def shadow(data: bytes, seed: int) -> bytes:
    """As `database.shadow`; rows that others refer to stay."""
    library, rng = _library(), random.Random(seed)
    file = Path(_folder().name) / f"shadow-{hashlib.sha256(data).hexdigest()[:16]}-{seed}.duckdb"
    file.write_bytes(data)
    with closing(library.connect(str(file))) as db:
        for name, columns in reversed(tables(data).items()):
            ids = [r[0] for r in db.execute(f"SELECT rowid FROM {quoted(name)} ORDER BY rowid").fetchall()]
            gone = [i for i in ids if len(ids) > 2 and rng.random() < 1 / 3]
            changed = [
                f"UPDATE {quoted(name)} SET {quoted(c.name)} = {quoted(c.name)} + {rng.randint(1, 5)} * (rowid % 3)"
                for c in columns
                if not c.key and c.refers is None and not c.name.lower().endswith("id") and rng.random() < 0.5
            ]
            gone_rows = f"DELETE FROM {quoted(name)} WHERE rowid IN ({', '.join(map(str, gone))})" if gone else ""
            for statement in filter(None, (*changed, gone_rows)):
                try:
                    db.execute(statement)
                except library.Error:  # text and dates are no numbers; a constraint holds
                    continue
        db.execute("CHECKPOINT")
    made = file.read_bytes()
    file.unlink()
    return made


# -- in the worker ----------------------------------------------------------------------------------------------------


class _Watch(threading.Thread):
    """Interrupts what takes too long. One for the life of a worker: every thread costs a part of its memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.running: tuple[duckdb.DuckDBPyConnection, float] | None = None  # until when, in processor time

    def run(self) -> None:
        while True:
            time.sleep(0.05)
            if (now := self.running) and time.process_time() > now[1]:
                with suppress(_library().Error):  # it has just ended
                    now[0].interrupt()


def main() -> None:
    watch = _Watch()
    watch.start()
    known = lru_cache(maxsize=8)(_connected)
    workers.serve(lambda question: _answer(known(question[0]), watch, *question[1:]), MEMORY)


def _answer(
    base: duckdb.DuckDBPyConnection, watch: _Watch, query: str, rows: int, seconds: float
) -> tuple[Sequence[str], Sequence[Sequence[Any]], str]:
    """The columns, the rows, and what went wrong."""
    library, cursor = _library(), base.cursor()
    try:
        statements = library.extract_statements(query)
        if len(statements) != 1 or statements[0].type != library.StatementType.SELECT:
            return (), (), "only reading is allowed, by one SELECT"
        watch.running = cursor, time.process_time() + seconds
        cursor.execute(statements[0])
        found = cursor.fetchmany(rows + 1)
        columns = tuple(str(d[0]) for d in cursor.description or ())
    except (library.Error, RuntimeError, OverflowError, MemoryError, UnicodeError, ValueError) as error:
        late = isinstance(error, library.InterruptException) or "nterrupt" in str(error)
        return (), (), _LATE if late else _first(error)
    finally:
        watch.running = None
        cursor.close()
    if len(found) > rows:
        return (), (), f"it gives more than {rows:,} rows"
    return columns, [[_cell(value) for value in row] for row in found], ""


def _cell(value: Any) -> Any:
    """As JSON takes it; bytes are a list with their digits."""
    if isinstance(value, bytes):
        return [value.hex()]
    if value is None or isinstance(value, int | float | str):
        return int(value) if isinstance(value, bool) else value
    return float(value) if isinstance(value, Decimal) else str(value)


if __name__ == "__main__":
    main()

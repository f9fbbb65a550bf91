"""DuckDB databases, inside a service: answers what `database.py` asks about DuckDB files.

A file is opened read-only, without access to other files, to extensions or to DuckDB's settings. DuckDB counts no
steps. While it builds a list of many numbers, it ignores its own memory limit and cannot be interrupted. So the service
limits processor time and memory. What a query does is read from DuckDB's syntax tree and not from the query's text,
because a name can be quoted, and a comment can stand between a name and its brackets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_SETTINGS = {
    "autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "memory_limit": "512MB",
    "python_enable_replacements": "false", "max_temp_directory_size": "0KB", "threads": "1",
}  # fmt: skip
_READING = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
# Functions of chance, the current time and the machine, and functions that run SQL from a string.
_REFUSED = re.compile(
    r"random|setseed|uuid|uuidv\d|gen_random_uuid|now|today|get_current_\w+|current_(?:date|time|timestamp|setting)|"
    r"localtime|localtimestamp|transaction_timestamp|txid_current|nextval|currval|getenv|getvariable|"
    r"duckdb_\w+|pragma_\w+|query|query_table|json_execute_\w+",
    re.I,
)
_PRESENT = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}  # without brackets


def _library() -> Any:
    import duckdb

    return duckdb


_made: list[Any] = []  # one connection, made before the process is isolated, because making it is slow and reads files


def prepare() -> None:
    """Use as few threads as possible, because the process is forked for every question."""
    library = _library()
    try:
        _made.append(library.connect(":memory:", config={**_SETTINGS, "async_threads": "0"}))
    except library.Error:  # this setting exists only from DuckDB 2.0 on
        _made.append(library.connect(":memory:", config=_SETTINGS))


def probe() -> tuple[Any, Any]:
    return {"task": "alive"}, True


def answer(text: bytes) -> bytes:
    asked = json.loads(text)
    return json.dumps(_TASKS[asked.pop("task")](**asked)).encode()


def _connected(file: str) -> duckdb.DuckDBPyConnection:
    """Attach the file. This process ends after its answer, so the next one gets the connection unchanged."""
    db: duckdb.DuckDBPyConnection = _made[0]
    db.execute(f"ATTACH '{file}' AS given (READ_ONLY)")
    for statement in ("USE given", "SET enable_external_access = false", "SET lock_configuration = true"):
        db.execute(statement)
    return db


def _first(error: BaseException) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")


def _check(file: str) -> str:
    """Why the file is not a database; empty if it is one."""
    try:
        _connected(file).execute("SELECT 1").fetchone()
    except _library().Error as error:
        return _first(error)
    return ""


# -- queries ----------------------------------------------------------------------------------------------------------


def _query(file: str, query: str, rows: int) -> dict[str, Any]:
    library = _library()
    try:
        db = _connected(file)
        if why := _refused(db, query):
            return {"columns": [], "rows": [], "error": why}
        db.execute(query)
        found = db.fetchmany(rows + 1)
        columns = [str(d[0]) for d in db.description or ()]
    except (library.Error, RuntimeError, OverflowError, UnicodeError, ValueError) as error:
        return {"columns": [], "rows": [], "error": _first(error)}
    if len(found) > rows:
        return {"columns": [], "rows": [], "error": f"it gives more than {rows:,} rows"}
    return {"columns": columns, "rows": [[_cell(value) for value in row] for row in found], "error": ""}


def _refused(db: duckdb.DuckDBPyConnection, query: str) -> str:
    """Why a query must not run; empty if it may."""
    one = db.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    tree = json.loads(one[0]) if one else {}
    if tree.get("error_type") == "parser":
        return str(tree["error_message"])
    if tree.get("error", True) or len(tree["statements"]) != 1:
        return "only reading is allowed, by one SELECT"
    return next(_faults(tree), "")


def _faults(tree: Any) -> Iterator[str]:
    ahead = [tree]
    while ahead:
        x = ahead.pop()
        if isinstance(x, list):
            ahead += x
        elif isinstance(x, dict):
            ahead += x.values()
            kind, columns = x.get("type"), x.get("column_names")
            if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _READING:
                yield "only reading is allowed, by one SELECT"
            for name in (x.get("function_name"), x.get("table_name")):
                if isinstance(name, str) and _REFUSED.fullmatch(name):
                    yield f"{name} is not allowed"
            if isinstance(columns, list) and len(columns) == 1 and str(columns[0]).lower() in _PRESENT:
                yield f"{columns[0]} is not allowed"
            if x.get("sample"):
                yield "a random sample is not allowed"


def _cell(value: Any) -> Any:
    """A value as JSON. Bytes become a list with their hexadecimal digits."""
    if isinstance(value, bytes):
        return [value.hex()]
    if value is None or isinstance(value, int | float | str):
        return int(value) if isinstance(value, bool) else value
    return float(value) if isinstance(value, Decimal) else str(value)


# -- schema and contents ----------------------------------------------------------------------------------------------


def _tables(file: str) -> dict[str, list[dict[str, Any]]]:
    """The columns of every table, as the fields of `query.Column`."""
    links: dict[tuple[str, str], tuple[str, str]] = {}
    keys: set[tuple[str, str]] = set()
    found: dict[str, list[dict[str, Any]]] = {}
    db = _connected(file)
    for table, kind, names, other, theirs in db.execute(
        "SELECT table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names "
        "FROM duckdb_constraints() WHERE database_name = 'given'"
    ).fetchall():
        if kind == "PRIMARY KEY":
            keys |= {(table, name) for name in names}
        elif kind == "FOREIGN KEY":
            links |= {(table, n): (other, t) for n, t in zip(names, theirs, strict=True)}
    for table, name, kind in db.execute(
        "SELECT c.table_name, c.column_name, c.data_type FROM duckdb_columns() c JOIN duckdb_tables() t USING "
        "(table_oid) WHERE NOT c.internal AND t.database_name = 'given' ORDER BY table_oid, column_index"
    ).fetchall():
        column = {"key": (table, name) in keys, "refers": links.get((table, name))}
        found.setdefault(table, []).append({"name": name, "type": kind, **column})
    return found


_TASKS: dict[str, Callable[..., Any]] = {
    "alive": lambda: True, "query": _query, "check": _check, "tables": _tables,
}  # fmt: skip

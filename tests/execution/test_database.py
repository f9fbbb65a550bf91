"""Queries on databases: read-only, limited and deterministic."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interplay.envs.tasks import shop
from interplay.errors import DataError
from interplay.execution import database
from interplay.execution.database import run

SHOP = shop.database(1, 40)
BOMB = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "

REFUSED = {
    "a step that never ends": "SELECT " + ", ".join(["length(printf('%.*c', 2000000000, 'x'))"] * 9),
    "the same, put together": "SELECT length(format('%-3.' || '2000000000' || 'c', 'x'))",
    "insert": "INSERT INTO customer VALUES (99, 'x', 'y', 1)",
    "update": "UPDATE customer SET age = 1",
    "delete": "DELETE FROM customer",
    "drop": "DROP TABLE customer",
    "create": "CREATE TABLE t (x)",
    "create as": "CREATE TEMP TABLE t AS SELECT 1",
    "attach": "ATTACH DATABASE 'other.db' AS other",
    "vacuum into": "VACUUM INTO 'copy.db'",
    "pragma": "PRAGMA table_info(customer)",
    "pragma write": "PRAGMA writable_schema = 1",
    "pragma function": "SELECT * FROM pragma_table_info('customer'), (SELECT load_extension('x'))",
    "transaction": "BEGIN",
    "two statements": "SELECT 1; DELETE FROM customer",
    "extension": "SELECT load_extension('evil')",
    "random": "SELECT random()",
    "random bytes": "SELECT hex(randomblob(4))",
    "now": "SELECT date('now')",
    "now, bare": "SELECT datetime()",
    "clock": "SELECT CURRENT_TIMESTAMP",
    "nothing": "",
    "comment": "-- nothing",
    "null byte": "SELECT 1 \0",
    "no such table": "SELECT * FROM nowhere",
    "syntax": "SELECT FROM WHERE",
    "giant": "SELECT '" + "x" * 30_000 + "'",
    "giant value": "SELECT replace(hex(zeroblob(400000)), '0', 'xxxxxxxxxx')",
    "giant zero": "SELECT zeroblob(1000000000)",
    "deep": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "many rows": BOMB + "SELECT i FROM n LIMIT 20000",
    "cte bomb": BOMB + "SELECT count(*) FROM n",
    "cte sorted": BOMB + "SELECT i FROM n ORDER BY -i LIMIT 1",
    "cross join": "SELECT count(*) FROM " + ", ".join(f"purchase AS p{i}" for i in range(12)),
    "surrogate": "SELECT '\ud800'",
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_but_a_limited_select_runs(name: str) -> None:
    before = run(SHOP, "SELECT count(*), sum(age) FROM customer")
    began = time.process_time()
    found = run(SHOP, REFUSED[name])
    assert found.error and not found.rows
    assert time.process_time() - began < 20
    assert run(SHOP, "SELECT count(*), sum(age) FROM customer") == before, "every query has a copy of its own"


def test_one_step_that_takes_long_is_ended_and_takes_no_time_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single step has no limit of its own. Before queries had their own processes, it took 31 s in the caller's
    process."""
    assert run(SHOP, "SELECT 1").rows == ((1,),), "the service runs"
    began = time.process_time()
    long = "replace(hex(zeroblob(15000)), '0', '{}')"
    with monkeypatch.context() as patch:
        patch.setattr(database, "SECONDS", 1.0)
        found = run(SHOP, f"SELECT length(trim({long.format('a')}, {long.format('b')} || 'a'))")
    assert found.error == "it took too long", found
    assert time.process_time() - began < 5, "also with a garbage collection, and with other threads of this process"
    assert run(SHOP, "SELECT 1").rows == ((1,),), "and the next one is answered"


def test_queries_of_ours_are_answered_as_those_of_models_are() -> None:
    """`ask` runs them in this process, with the same limits and the same answers."""
    for query in (*REFUSED.values(), "SELECT age, name FROM customer ORDER BY 1, 2", "SELECT x'00ff', NULL, 0.1, 'é'"):
        assert database.ask(SHOP, query) == run(SHOP, query), query


def test_a_query_finds_nothing_of_the_one_before() -> None:
    """Each query is answered by a process that ends with it."""
    for _ in range(3):
        assert run(SHOP, "CREATE TEMP TABLE t AS SELECT 1").error
        assert run(SHOP, "SELECT count(*) FROM sqlite_temp_master").rows in (((0,),), ()), "no table is left"


def test_many_at_once_are_answered_each_with_its_own() -> None:
    other = shop.database(2, 40)
    with ThreadPoolExecutor(6) as threads:
        asked = [(data, n) for n in range(30) for data in (SHOP, other)]
        found = list(threads.map(lambda a: run(a[0], f"SELECT {a[1]}, sum(age) FROM customer"), asked))
    sums = {data: run(data, "SELECT sum(age) FROM customer").rows[0][0] for data in (SHOP, other)}
    assert [f.rows for f in found] == [((n, sums[data]),) for data, n in asked]


def test_a_result_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "SECONDS", 100.0)  # a slow machine needs more than the usual limit to make it
    rows = BOMB.replace("SELECT i + 1 FROM n", "SELECT i + 1 FROM n LIMIT 900") + "SELECT hex(zeroblob(100000)) FROM n"
    assert run(SHOP, rows).error == "its result is too large"


def test_a_limit_falls_at_the_same_place_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    query = BOMB + "SELECT count(*) FROM (SELECT i FROM n LIMIT {})"
    monkeypatch.setattr(database, "STEPS", 400_000)
    runs = [[not run(SHOP, query.format(i)).error for i in range(1000, 60_000, 4000)] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2] and True in runs[0] and False in runs[0]


def test_what_reads_runs() -> None:
    assert run(SHOP, "SELECT 1").rows == ((1,),)
    assert run(SHOP, "WITH t AS (SELECT age FROM customer) SELECT max(age) > 0 FROM t").rows == ((1,),)
    assert run(SHOP, "SELECT printf('%d%% %5.1f %,d', 5, 2.25, 1234567), format('%c', 'xy'), printf(NULL)").rows == (
        ("5%   2.3 1,234,567", "x", None),
    )
    assert run(SHOP, "VALUES (1, 'a'), (2, NULL)").rows == ((1, "a"), (2, None))
    assert run(SHOP, "SELECT strftime('%Y', '2020-02-03'), date('2020-01-01', '+1 day')").rows == (
        ("2020", "2020-01-02"),
    )


def test_files_are_read_whole_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    with pytest.raises(DataError, match="cannot be read"):
        database.read(file)
    file.write_text("no database")
    with pytest.raises(DataError, match="is not a database; expected a file of SQLite or DuckDB"):
        database.read(file)
    file.unlink()
    db = sqlite3.connect(file)
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript("CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT); INSERT INTO t VALUES (1, 'a'), (2, 'b');")
    db.close()
    data = database.read(file)
    assert run(data, "SELECT count(*) FROM t").rows == ((2,),), "also one with a write-ahead log"
    assert database.schema(data) == "t(x INTEGER key, y TEXT)"
    assert database.text(run(data, "SELECT * FROM t"), 1) == "x | y\n1 | a\n… (2 rows)"

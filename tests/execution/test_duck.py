"""DuckDB databases: the same answers as SQLite, and only reading; the task can use them."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb", reason="DuckDB databases need interplay[duckdb]")

import duckdb

from interplay.agents.bots import make_bot
from interplay.envs import make, sample_task
from interplay.envs.tasks import shop
from interplay.envs.tasks.prepare import prepare
from interplay.envs.tasks.sql import SQL
from interplay.errors import ConfigError, DataError
from interplay.execution import database
from interplay.execution.query import quoted
from interplay.rewards.query_match import same

SECRET = "a variable of this process"  # what a query must not find


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop of the sql task, as a DuckDB file."""
    path = tmp_path_factory.mktemp("duck") / "shop.duckdb"
    origin = shop.database(7, 60)
    with duckdb.connect(str(path)) as db:
        for name, columns in database.tables(origin).items():
            parts = [
                f"{quoted(c.name)} {c.type.replace('REAL', 'DECIMAL(8, 2)')}"
                + (" PRIMARY KEY" if c.key else f" REFERENCES {c.refers[0]}({c.refers[1]})" if c.refers else "")
                for c in columns
            ]
            db.execute(f"CREATE TABLE {name} ({', '.join(parts)})")
            rows = database.run(origin, f"SELECT * FROM {name}").rows
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)
    return path


@pytest.fixture(scope="module")
def data(file: Path) -> bytes:
    return database.read(file)


def test_it_answers_as_sqlite_does(data: bytes) -> None:
    origin = shop.database(7, 60)
    for query in (
        "SELECT count(*) FROM customer",
        "SELECT c.town, sum(p.quantity) FROM purchase p JOIN customer c USING (customer_id) GROUP BY c.town",
        "SELECT name, price FROM product ORDER BY price DESC, product_id LIMIT 3",
        "WITH t AS (SELECT avg(age) AS a FROM customer) SELECT a FROM t",
    ):
        assert same(database.run(origin, query), database.run(data, query), "ORDER" in query), query
    assert database.schema(data).split("\n")[2].startswith("purchase(purchase_id INTEGER key, customer_id INTEGER -> ")
    assert database.dialect(data) == "DuckDB"


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM purchase", "SELECT 1; SELECT 2", "CREATE TABLE x AS SELECT 1", "INSTALL httpfs", "SET threads = 8",
        "PRAGMA database_list", "CALL pragma_version()", "ATTACH 'x.duckdb'", "EXPORT DATABASE 'x'",
        "COPY customer TO 'x.csv'", "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/hostname')", "SELECT * FROM glob('/*')", "SELECT getenv('HOME')",
        "SELECT SECRET",
        "SELECT * FROM SECRET", "SELECT random()", "SELECT now()", "SELECT current_date", "SELECT uuid()",
        "SELECT * FROM customer USING SAMPLE 2", "SELECT * FROM duckdb_settings()", "SELECT", "", "nonsense",
        "SELECT \0",
        "SELECT * FROM range(100000)", "SELECT * FROM nowhere", "SELECT repeat('x', 100000000000)",
    ],
)  # fmt: skip
def test_nothing_but_reading(data: bytes, query: str) -> None:
    found = database.run(data, query)
    assert found.error and not found.rows, found


def test_a_query_cannot_change_what_the_next_one_finds(data: bytes) -> None:
    """It does not know where the database is, and even if it did, it could not write there."""
    count = "SELECT count(*), sum(quantity) FROM purchase"
    before = database.run(data, count)
    learnt = database.run(data, 'SELECT path FROM "duckdb_databases"() WHERE path IS NOT NULL')
    assert learnt.error and not learnt.rows, learnt
    for path in (database._name(data), "given"):
        for target in (path, f"{path}.wal"):
            for form in ("csv", "blob", "parquet"):
                attack = f"WITH q AS (COPY (SELECT 'x'::blob) TO '{target}' (FORMAT {form})) SELECT 1"
                assert database.run(data, attack).error
    assert database.run(data, count) == before and before.rows


def test_who_answers_has_no_variables_of_ours(file: Path) -> None:
    """In a separate process, so that the service is started while the variable is set."""
    asks = (
        "import os, sys\nfrom pathlib import Path\nfrom hostile import descendants\n"
        "from interplay.execution import database\n"
        f"assert database.run(database.read({str(file)!r}), 'SELECT 1').rows\nfound = descendants(os.getpid())\n"
        "print(len(found) > 0, [p for p in found if b'INTERPLAY_CANARY' in Path(f'/proc/{p}/environ').read_bytes()])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INTERPLAY_CANARY": "secret"}
    done = subprocess.run([sys.executable, "-c", asks], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n", done


@pytest.mark.parametrize(
    "query",
    ['SELECT "random"()', "SELECT random/* */()", "SELECT random --\n ()", "SELECT * FROM query('SELECT random()')",
     "SELECT * FROM duckdb_databases", "SELECT * FROM pragma_database_list", "SELECT 1 WHERE 1 = (SELECT random())",
     "WITH t AS (SELECT now() AS x) SELECT * FROM t", "FROM customer TABLESAMPLE 10%", "SELECT localtimestamp"],
)  # fmt: skip
def test_chance_and_the_present_are_found_however_they_are_written(data: bytes, query: str) -> None:
    found = database.run(data, query)
    assert "is not allowed" in found.error, found


def test_words_that_only_look_like_chance_are_read(data: bytes) -> None:
    query = "SELECT 'random() now()' AS \"uuid\", count(*) AS random FROM customer -- today()"
    assert database.run(data, query).rows[0][0] == "random() now()"


def test_the_clock_ends_what_does_not_end(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "SECONDS", 0.3)
        query = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range + b.range = 1"
        found = database.run(data, query)
    assert found.error == "it took too long"
    assert database.run(data, "SELECT count(*) FROM customer").rows, "the database is still there"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT len(range(300000000))",
        "SELECT list_sum(range(200000000))",
        "WITH RECURSIVE t(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM t) SELECT length(x) FROM t",
        "SELECT length(string_agg(repeat('x', 1000), '')) FROM range(10000000)",
        "SELECT md5(repeat('x', 2000000000))",
        "SELECT array_agg(a.range) FROM range(100000) a, range(100000) b",
    ],
)
def test_a_greedy_query_takes_no_memory_of_ours(data: bytes, query: str) -> None:
    """What DuckDB's own limit does not limit is limited by the process in which it runs."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = database.run(data, query)
    assert found.error and not found.rows, found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kilobytes"
    assert database.run(data, "SELECT count(*) FROM customer").rows, "and the next one is answered"


def test_values_come_back_as_they_were(data: bytes) -> None:
    query = "SELECT '\\xAA'::blob, 1.5::decimal(4, 2), 'inf'::double, date '2020-01-01', NULL, true, 2::hugeint, 'é'"
    found = database.run(data, query)
    assert found.rows == ((b"\xaa", 1.5, float("inf"), "2020-01-01", None, 1, 2, "é"),), found


def test_the_task_on_a_duckdb_file(file: Path) -> None:
    """The scripted team is always right, and an answer without a query earns nothing."""
    options = {"database": str(file), "tools": True}
    bot = make_bot("expert", "sql")
    for index in range(6):
        for honest in (True, False):
            env = make(sample_task("sql", options, "test", index))
            assert isinstance(env, SQL)
            while seen := env.observe():
                told = {role: bot.act(env, role, random.Random(0)) for role in seen}
                if "writer" in told and not honest:
                    told = {"writer": "SELECT 42"}
                    assert "one DuckDB SELECT" in seen["writer"].messages[0].content
                env.step(told)
            assert sum(r.value or 0.0 for r in env.outcome()) == honest


def test_prepared_rows_may_bring_one(tmp_path: Path, file: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/shop.duckdb").write_bytes(file.read_bytes())
    asked = {"db": "shop", "question": "How many customers?", "gold_sql": ["SELECT count(*) FROM customer"]}
    (tmp_path / "raw/questions.json").write_text(json.dumps([asked]))
    prepare("defog", tmp_path / "raw", tmp_path / "out")
    env = make(sample_task("sql", {"data": str(tmp_path / "out"), "team": "single"}, "test"))
    env.step({"writer": "SELECT count(customer_id) FROM customer"})
    assert sum(r.value or 0.0 for r in env.outcome()) == 1.0


def test_what_is_missing_is_said(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.duckdb"
    broken.write_bytes(file.read_bytes()[:12] + b"\0" * 5000)
    with pytest.raises(DataError, match="not a DuckDB database"):
        database.read(broken)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"interplay\[duckdb\]"):
        database.run(file.read_bytes() + b"\0", "SELECT 1")

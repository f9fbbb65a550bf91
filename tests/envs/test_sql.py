"""Database query: the scripted team is always right, cheats never are, and real databases can be played."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playing import earned, expert

from interplay.envs import make, sample_task
from interplay.envs.check import check
from interplay.envs.env import PENALTY
from interplay.envs.tasks import shop
from interplay.envs.tasks.prepare import prepare
from interplay.envs.tasks.sql import SQL, query_of
from interplay.errors import ConfigError
from interplay.execution import database
from interplay.execution.query import Cell
from interplay.rewards.shadow import shadows
from interplay.types import Observation

Say = Callable[[SQL, str, Observation], str]
DATA = Path(os.environ["INTERPLAY_DATA"]) if os.environ.get("INTERPLAY_DATA") else None
needs_data = pytest.mark.skipif(DATA is None, reason="INTERPLAY_DATA names no folder with the public samples")


def play(say: Say, options: dict[str, Any] | None = None, split: str = "train", tasks: int = 12) -> list[float]:
    return earned("sql", tasks, say, options or {}, split)


def written(rows: tuple[tuple[Cell, ...], ...]) -> str:
    cell = lambda c: "NULL" if c is None else "'" + c.replace("'", "''") + "'" if isinstance(c, str) else repr(c)  # noqa: E731
    return "VALUES " + ", ".join("(" + ", ".join(map(cell, row)) + ")" for row in rows)


CHEATS: dict[str, Say] = {
    "echo": lambda env, role, o: "\n".join(m.content for m in o.messages),
    "empty": lambda env, role, o: "",
    "format only": lambda env, role, o: "```sql\n\n```",
    "ignores the givens": lambda env, role, o: "SELECT count(*) FROM sqlite_master",
    "hard-coded": lambda env, role, o: "SELECT 42",
    "the very result": lambda env, role, o: written(database.run(env.data, env.row["sql"][0]).rows),
    "the result from a table": lambda env, role, o: (
        f"SELECT * FROM ({written(database.run(env.data, env.row['sql'][0]).rows)}), (SELECT 1 FROM customer LIMIT 1)"
    ),
    "giant": lambda env, role, o: "SELECT " + "1, " * 50_000 + "1",
    "write": lambda env, role, o: "DELETE FROM purchase",
    "write, then read": lambda env, role, o: f"DELETE FROM purchase; {env.row['sql'][0]}",
    "cte bomb": lambda env, role, o: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT * FROM n",
    "everything": lambda env, role, o: "SELECT * FROM purchase, customer, product",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_earn_nothing(cheat: str) -> None:
    assert set(play(CHEATS[cheat], {"attempts": 1}, tasks=8)) == {0.0}


@pytest.mark.parametrize("options", [{}, {"team": "single"}, {"tools": True, "attempts": 1, "size": 60}])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_scripted_team_is_always_right(options: dict[str, Any], split: str) -> None:
    assert set(play(expert, options, split)) == {1.0}


def test_the_environment_conforms() -> None:
    findings = check("sql", {"tools": True}, episodes=4)
    assert [f for f in findings if not f.passed] == []


def test_a_failed_query_comes_back_with_its_error() -> None:
    env = make(sample_task("sql", {"attempts": 3}))
    assert isinstance(env, SQL)
    env.step({"planner": "count <|end|> them"})
    assert "count < |end|> them" in env.observe()["writer"].messages[1].content
    rewards = env.step({"writer": "SELECT x FROM nowhere"})
    assert [(r.name, r.value) for r in rewards] == [("illegal", PENALTY)]
    seen = env.observe()["writer"]
    assert "no such table: nowhere" in seen.messages[1].content and seen.phase == "repair"
    env.step({"writer": "I cannot"})
    assert "there is no SELECT in the reply" in env.observe()["writer"].messages[1].content
    assert not env.step({"writer": expert(env, "writer", seen)})
    assert not env.observe() and [r.value for r in env.outcome()] == [1.0]


def test_the_tool_shows_the_data_and_nothing_else() -> None:
    env = make(sample_task("sql", {"tools": True}))
    (tool,) = env.observe()["planner"].tools
    assert tool.run(query="SELECT count(*) AS n FROM purchase") == "n\n24"
    assert tool.run(query="DELETE FROM purchase") == "error: only reading is allowed, by one SELECT"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("SELECT 1;", "SELECT 1"),
        (
            "Sure:\n```sql\nSELECT 1\n```\nor\n```\nWITH t AS (SELECT 2) TABLE t;\n```",
            "WITH t AS (SELECT 2) TABLE t",
        ),
        ("-- first\nselect 1", "-- first\nselect 1"),
        ("The answer is SELECT", None),
        ("selection", None),
        ("", None),
    ],
)
def test_the_query_in_a_reply(text: str, query: str | None) -> None:
    assert query_of(text) == query


def test_questions_of_different_splits_differ_and_each_has_a_telling_shadow() -> None:
    seen: dict[str, set[str]] = {}
    for split in ("train", "validation", "test"):
        rows = [sample_task("sql", {}, split, i).data["row"] for i in range(40)]
        seen[split] = {row["question"] for row in rows}
        assert len(seen[split]) > 25
        assert all(shadows(shop.database(r["shop"], 24), r["sql"][0]) for r in rows)
    assert not seen["train"] & seen["test"] and not seen["train"] & seen["validation"]


def test_wrong_options_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env\.patterns is"):
        sample_task("sql", {"patterns": ["guess"]})


@needs_data
def test_questions_over_chinook() -> None:
    assert DATA is not None
    options = {"database": str(DATA / "sql_chinook" / "Chinook_Sqlite.sqlite")}
    assert set(play(expert, options, "test", 10)) == {1.0}
    assert set(play(CHEATS["the very result"], options, "test", 10)) == {0.0}


@needs_data
def test_defogs_questions_prepared_and_played(tmp_path: Path) -> None:
    assert DATA is not None
    report = prepare("defog", DATA / "sql_defog", tmp_path / "defog")
    assert report.counts == {"test": 185} and report.dropped["unusable"] == 4
    assert report.dropped["gold_answer_fails"] == 1  # its result is NULL in every shadow
    options = {"data": str(tmp_path / "defog")}
    assert set(play(expert, options, "test", 60)) == {1.0}
    assert sum(play(CHEATS["the very result"], options, "test", 60)) <= 1, "one result is the same in every shadow"

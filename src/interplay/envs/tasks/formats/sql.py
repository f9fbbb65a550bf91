"""Questions over databases: rows of `question`, `sql` (gold queries, any of which is right), `ordered` and `db`.

`db` names the attached SQLite or DuckDB file. Questions whose gold query needs the current time are left out.
"""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import Field

from interplay.envs.tasks.data import DataRow, Public, register_format
from interplay.execution.database import timely

_ORDER = re.compile(
    r"\b(?:order(?:ed)?|sort(?:ed)?|rank(?:ed|ing)?|descending|ascending|alphabetical(?:ly)?|chronological(?:ly)?|from "
    r"(?:the )?(?:highest|largest|most|lowest|smallest|least|oldest|newest))\b", re.I,
)  # fmt: skip


def asks_for_order(question: str, sql: str) -> bool:
    """Whether the order of rows counts: the question asks for an order, and the gold query sorts."""
    return bool(_ORDER.search(question)) and "order by" in sql.lower()


class _SQL(Public):
    kind: ClassVar[str] = "sql"
    attached: ClassVar[tuple[str, ...]] = ("*.sqlite", "*.duckdb")

    @classmethod
    def compared(cls, row: DataRow) -> str:
        return f"{row['question']}\n{row['db']}"  # with another database it is another question


def _row(db: str, question: str, golds: list[str]) -> DataRow | None:
    usable = [gold.strip().rstrip(";") for gold in golds if not timely(gold)]
    if not usable:
        return None
    return {"question": question, "sql": usable, "ordered": asks_for_order(question, usable[0]), "db": db}


@register_format("defog")
class Defog(_SQL):
    """Questions over seven small databases (Defog's sql-eval), each with every query that counts as right.

    It is a file with `db`, `question`, `gold_sql` and `n_rows` beside its databases. Questions whose result has no rows
    are left out."""

    licence = "Apache-2.0"
    alone = "test"
    db: str
    question: str
    gold_sql: list[str] = Field(min_length=1)
    instructions: str = ""
    n_rows: list[int] | None = None

    def row(self) -> DataRow | None:
        sizes = self.n_rows or [1] * len(self.gold_sql)
        golds = [gold for gold, n in zip(self.gold_sql, sizes, strict=True) if n]
        note = f" {self.instructions.strip()}" if self.instructions.strip() else ""
        return _row(self.db, self.question + note, golds)


@register_format("spider")
class Spider(_SQL):
    """Questions over 200 databases (Yu et al., 2018): its published folder, with the databases."""

    licence = "CC BY-SA 4.0"
    files: ClassVar[tuple[str, ...]] = ("train_spider.json", "train_others.json", "dev.json")
    dev_is_test: ClassVar[bool] = True
    db_id: str
    question: str
    query: str

    def row(self) -> DataRow | None:
        return _row(self.db_id, self.question, [self.query])


@register_format("bird")
class Bird(_SQL):
    """Questions over large databases with outside knowledge (Li et al., 2023): its published folder."""

    licence = "CC BY-SA 4.0"
    files: ClassVar[tuple[str, ...]] = ("train.json", "dev.json")
    dev_is_test: ClassVar[bool] = True
    db_id: str
    question: str
    evidence: str = ""
    SQL: str

    def row(self) -> DataRow | None:
        note = f" ({self.evidence.strip()})" if self.evidence.strip() else ""
        return _row(self.db_id, self.question + note, [self.SQL])

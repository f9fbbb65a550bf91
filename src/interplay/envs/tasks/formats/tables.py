"""Questions over tables: rows of `question`, `answer` (rows of cells), `ordered` and `table` (`header` and `rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from interplay.envs.tasks.data import DataRow, Hub, Public, register_format
from interplay.types import seed_of

_EXPORT = "stanfordnlp/wikitablequestions@refs/convert/parquet"  # the hub's own export of the script's output


@register_format("wikitablequestions")
class WikiTableQuestions(Public):
    """Questions over Wikipedia's tables (Pasupat and Liang, 2015)."""

    kind: ClassVar[str] = "tables"
    licence = "CC BY-SA 4.0"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": (_EXPORT, None, "random-split-1/train/*.parquet"),
        "validation": (_EXPORT, None, "random-split-1/validation/*.parquet"),
        "test": (_EXPORT, None, "random-split-1/test/*.parquet"),
    }
    id: str | None = None
    question: str
    answers: list[str] = Field(min_length=1)
    table: dict[str, Any]

    def row(self) -> DataRow | None:
        header, rows = self.table["header"], self.table["rows"]
        if any(len(r) != len(header) for r in rows):
            raise ValueError("a row of the table does not have as many cells as its header")
        if any(set(a) & set("|;\n") for a in self.answers) or len(set(map(str.lower, header))) != len(header):
            return None
        table = {"header": header, "rows": rows}
        row: DataRow = {
            "question": self.question,
            "answer": [[a] for a in self.answers],
            "ordered": False,
            "table": table,
        }
        return row | ({"id": self.id} if self.id else {})

    @classmethod
    def compared(cls, row: DataRow) -> str:
        """With another table it is another question. The table is one word here, so similar tables do not overlap."""
        return f"{row['question']}\n{seed_of('table', ascii(row['table']))}"

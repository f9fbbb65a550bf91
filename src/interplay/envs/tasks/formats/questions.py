"""Your own questions and answers: rows of any file or hub data set. The command line names the columns."""

from __future__ import annotations

from typing import ClassVar

from interplay.envs.tasks.data import DataRow, Public, register_format


@register_format("questions")
class Questions(Public):
    """Your own rows: interplay prepare FILE --question COLUMN --answer COLUMN."""

    kind: ClassVar[str] = "math"
    licence = "as the source says"
    alone = "train"
    holds_out_test = True
    question: str
    answer: str
    compare: str = "math"

    def row(self) -> DataRow | None:
        if not self.question.strip() or not self.answer.strip():
            return None
        row = {"question": self.question.strip(), "answer": self.answer.strip()}
        return row if self.compare == "math" else row | {"compare": self.compare}

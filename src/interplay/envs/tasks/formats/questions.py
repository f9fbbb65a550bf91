"""Your own questions and answers: rows of any file or hub data set. The command line names the columns."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from interplay.envs.tasks.data import DataRow, Public, register_format
from interplay.envs.tasks.media import UnreadableMedia


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
    media: list[list[str]] = Field([], description="kind and file name of each picture and sound")
    unreadable: str = Field("", description="why a picture or a sound of the row cannot be decoded")

    def row(self) -> DataRow | None:
        if self.unreadable:
            raise UnreadableMedia(self.unreadable)
        if not self.question.strip() or not self.answer.strip():
            return None
        row: DataRow = {"question": self.question.strip(), "answer": self.answer.strip()}
        if self.compare != "math":
            row["compare"] = self.compare
        if self.media:
            row["media"] = self.media
        return row

    @classmethod
    def compared(cls, row: DataRow) -> str:
        """Many rows may ask the same question about different pictures. So every word gets the names of the pictures,
        and rows are equal only if their pictures are equal too."""
        names = "+".join(name for _, name in row.get("media", ()))
        return " ".join(f"{word}·{names}" for word in row["question"].split()) if names else str(row["question"])

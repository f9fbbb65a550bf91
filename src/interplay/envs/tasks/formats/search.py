"""Questions to answer from passages: rows of `question`, `answers`, `passages` and `gold`.

`answers` are accepted texts, the usual one first. `passages` are indices into the table `corpus` (rows of `title` and
`text`, shared by all splits) that came with the question. `gold` are those of them that contain the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import AliasChoices, Field

from interplay.envs.tasks.data import DataRow, Hub, Public, register_format


class _Search(Public):
    kind: ClassVar[str] = "search"
    tables: ClassVar[tuple[str, ...]] = ("corpus",)
    dev_is_test: ClassVar[bool] = True

    @classmethod
    def gather(
        cls, splits: Mapping[str, list[DataRow]], tables: Mapping[str, list[DataRow]]
    ) -> dict[str, list[DataRow]]:
        """Make one corpus without duplicates. The passages of a row become indices into it."""
        corpus: dict[tuple[str, str], int] = {}

        def place(passage: Mapping[str, Any]) -> int:
            return corpus.setdefault((passage["title"], passage["text"]), len(corpus))

        given = [place(passage) for passage in tables.get("corpus", [])]
        for row in (row for rows in splits.values() for row in rows):
            if not all(isinstance(p, dict) or 0 <= p < len(given) for p in row["passages"]):
                raise ValueError(f"row '{row['id']}' names a passage that the corpus of {len(given)} does not have")
            gold = [p for p in row["passages"] if (p["gold"] if isinstance(p, dict) else p in row["gold"])]
            row["passages"], row["gold"] = (
                list(dict.fromkeys(place(p) if isinstance(p, dict) else given[p] for p in some))
                for some in (row["passages"], gold)
            )
        return {"corpus": [{"title": title, "text": text} for title, text in corpus]}


@register_format("hotpotqa")
class HotpotQA(_Search):
    """Questions over two Wikipedia articles (Yang et al., 2018), with distractors.

    As published, from the hub, or with indices into a corpus.jsonl beside it."""

    licence = "CC BY-SA 4.0"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("hotpotqa/hotpot_qa", "distractor", "train"),
        "test": ("hotpotqa/hotpot_qa", "distractor", "validation"),
    }
    alone = "test"
    id: str | None = Field(None, validation_alias=AliasChoices("id", "_id"))
    question: str
    answer: str
    context: list[Any] | dict[str, Any] | None = None
    supporting_facts: list[Any] | dict[str, Any] | None = None
    gold_passages: list[int] = Field([])
    context_passages: list[int] | None = None

    def row(self) -> DataRow:
        row: DataRow = {"question": self.question, "answers": [self.answer]} | ({"id": self.id} if self.id else {})
        if self.context_passages is not None:
            return row | {"passages": self.context_passages, "gold": self.gold_passages}
        if self.context is None or self.supporting_facts is None:
            raise ValueError("context and supporting_facts are missing; expected them, or context_passages")
        if isinstance(self.context, dict):  # the hub stores columns
            context = list(zip(self.context["title"], self.context["sentences"], strict=True))
        else:
            context = [tuple(part) for part in self.context]
        facts = self.supporting_facts
        titles = set(facts["title"]) if isinstance(facts, dict) else {title for title, _ in facts}
        passages = [{"title": t, "text": "".join(s).strip(), "gold": t in titles} for t, s in context]
        return row | {"passages": passages, "gold": []}


@register_format("musique")
class MuSiQue(_Search):
    """Questions of two to four hops (Trivedi et al., 2022).

    Questions that cannot be answered are left out."""

    licence = "CC BY 4.0"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("dgslibisey/MuSiQue", None, "train"),
        "test": ("dgslibisey/MuSiQue", None, "validation"),
    }
    alone = "test"
    files: ClassVar[tuple[str, ...]] = ("musique_*_train.jsonl", "musique_*_dev.jsonl")
    id: str
    question: str
    answer: str
    answer_aliases: list[str] = Field([])
    answerable: bool = True
    paragraphs: list[dict[str, Any]]

    def row(self) -> DataRow | None:
        if not self.answerable:
            return None
        passages = [
            {"title": p["title"], "text": p["paragraph_text"], "gold": bool(p.get("is_supporting"))}
            for p in self.paragraphs
        ]
        answers = list(dict.fromkeys([self.answer, *self.answer_aliases]))
        return {"id": self.id, "question": self.question, "answers": answers, "passages": passages, "gold": []}

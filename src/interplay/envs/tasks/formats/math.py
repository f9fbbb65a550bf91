"""Questions with a mathematical answer: rows of `question`, `answer` and, if known, `level` and `type`.

An answer of several parts is one text, `a, b, c`. Worked solutions are left out, because nothing is trained on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import AliasChoices, Field

from interplay.envs.tasks.data import DataRow, Hub, Public, register_format
from interplay.rewards.verify import boxed

_SUBJECTS = (
    "algebra,counting_and_probability,geometry,intermediate_algebra,number_theory,prealgebra,precalculus"  # as the hub
)


class _Math(Public):
    kind: ClassVar[str] = "math"


@register_format("gsm8k")
class GSM8K(_Math):
    """Grade-school word problems (Cobbe et al., 2021)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("openai/gsm8k", "main", "train"),
        "test": ("openai/gsm8k", "main", "test"),
    }
    question: str
    answer: str

    def row(self) -> DataRow:
        _, mark, final = self.answer.rpartition("####")
        if not mark or not final.strip():
            raise ValueError("answer has no final '#### N'")
        return {"question": self.question, "answer": final.strip().replace(",", "")}


@register_format("math")
class HendrycksMath(_Math):
    """Competition problems in seven subjects and five levels (Hendrycks et al., 2021)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("EleutherAI/hendrycks_math", _SUBJECTS, "train"),
        "test": ("EleutherAI/hendrycks_math", _SUBJECTS, "test"),
    }
    problem: str
    solution: str = ""
    answer: str | None = None
    level: str | float | None = None
    type: str = ""

    def row(self) -> DataRow | None:
        answer = self.answer or boxed(self.solution)
        if not answer:
            return None  # a few rows have no answer that can be checked
        level = str(self.level or "").removeprefix("Level ").removesuffix(".0")
        return {"question": self.problem, "answer": answer, "level": level, "type": self.type}


@register_format("math500")
class Math500(_Math):
    """500 test problems of MATH (Lightman et al., 2023)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("HuggingFaceH4/MATH-500", None, "test")}
    alone = "test"
    problem: str
    answer: str
    level: int | None = None
    subject: str = ""

    def row(self) -> DataRow:
        return {"question": self.problem, "answer": self.answer, "level": str(self.level or ""), "type": self.subject}


@register_format("aime")
class AIME(_Math):
    """AIME problems: the answer is a whole number from 0 to 999."""

    licence = "problems of the Mathematical Association of America; see the source"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("HuggingFaceH4/aime_2024", None, "train")}
    alone = "test"
    problem: str = Field(validation_alias=AliasChoices("problem", "Problem", "question", "Question"))
    answer: str | int = Field(validation_alias=AliasChoices("answer", "Answer"))

    def row(self) -> DataRow:
        text = str(self.answer).strip()
        if not text.isdecimal() or int(text) > 999:
            raise ValueError(f"answer is '{text}'; expected a whole number from 0 to 999")
        return {"question": self.problem, "answer": str(int(text))}


@register_format("amc")
class AMC(_Math):
    """AMC 10 and 12 problems whose answer is a number."""

    licence = "problems of the Mathematical Association of America; see the source"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("AI-MO/aimo-validation-amc", None, "train")}
    alone = "test"
    problem: str = Field(validation_alias=AliasChoices("problem", "question"))
    answer: str | float

    def row(self) -> DataRow:
        text = f"{self.answer:g}" if isinstance(self.answer, float) else self.answer
        if text in ("nan", "inf", "-inf"):
            raise ValueError(f"answer is {text}; expected a number")
        return {"question": self.problem, "answer": text}


@register_format("olympiadbench")
class OlympiadBench(_Math):
    """Olympiad problems with open answers: the text-only English competition part (He et al., 2024)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train")}
    alone = "test"
    question: str
    final_answer: list[str] | None
    error: str | None = None  # a tolerance
    subfield: str = ""
    answer_type: str = ""

    def row(self) -> DataRow | None:
        if not self.final_answer or not self.final_answer[0]:
            return None
        row = {"question": self.question, "answer": ", ".join(self.final_answer), "type": self.subfield}
        return row | ({"tolerance": self.error} if self.error else {})

"""Structured data: an analyst answers a question about a table, and a checker confirms the answer or gives another.

Roles         analyst, checker; `team = "single"`: the analyst alone.
Turns         the analyst reads table and question and answers; the checker, who reads all that, has the last word.
              `view = "image"` shows the table as a picture, "both" in words too.
Actions       free text that ends in `Answer: …`: cells separated by |, rows by ; (numbers to two decimals will do). The
              checker may also say `agree`.
Tools         with `tools`, both may call `sql` (the table is `sheet`) and `calculator` inside their turn.
Rewards       `correct` (team, at the end): 1 if the final answer is right, else 0. `analysis` (agent): the same for the
              analyst's own answer. `illegal` (process): −0.1 for a reply without an answer.
Data          prepared rows of kind tables (wikitablequestions); with `file`, generated questions over that CSV or
              Parquet file; else over the orders of a small shop drawn from the seed. A question is in one split only,
              and questions whose answer is easy to guess (a small number, one word) are not asked.
Checker       compares cell by cell: numbers within 0.01 (or a millionth of their size), text without case; rows in any
              order unless the question asks for one.
Version       2
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.envs import tools
from interplay.envs.env import PENALTY, register
from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of
from interplay.envs.tasks import questions, sheet, shop
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.envs.tasks.drawn import drawn
from interplay.errors import ConfigError
from interplay.execution import database
from interplay.execution.query import Cell
from interplay.rewards.certainty import asserted
from interplay.rewards.reply import stated
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task, Tool

PATTERNS = ("count", "aggregate", "distinct", "top")
SMALL = 20  # smaller whole numbers are too easy to guess
LONGEST = 4000  # the largest number of characters in a reply
# Python's float() also accepts 1_0, inf and digits of other scripts.
_NUMBER = re.compile(
    r"[$€£]?[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+|(?<=[0-9])\.?)(?:[eE][-+]?[0-9]{1,3})?"
)
_AGREE = re.compile(r"\s*(?:i\s+)?agree[.!]?\s*", re.I)
_FORM = "End with one line: Answer: and the cells, separated by | and rows by ;"

HeaderAndRows = tuple[Sequence[str], Sequence[Sequence[Cell]]]


class Options(DataOptions):
    team: Literal["pair", "single"] = Field("pair", description="analyst and checker, or the analyst alone")
    tools: bool = Field(False, description="both roles may call sql and calculator")
    file: str = Field("", description="without data: a CSV or Parquet file to make questions over")
    size: int = Field(12, ge=4, le=400, description="number of orders in the table that is drawn without data and file")
    shown: int = Field(50, ge=1, description="rows of the table that are shown")
    view: Literal["text", "image", "both"] = Field(
        "text", description="how the table is shown: in words, as a picture, or both"
    )
    patterns: list[str] = Field(list(PATTERNS), description="patterns of the generated questions")


@register("tables")
class Tables(DataEnv):
    Options = Options
    kind: ClassVar[str] = "tables"
    success: ClassVar[str] = "correct"
    reward_names: ClassVar[tuple[str, ...]] = ("correct", "analysis", "illegal")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("analyst",) if task.data["team"] == "single" else ("analyst", "checker")
        self.answers: tuple[str | None, ...] = ()  # the analyst's answer, then the final one; None: no answer

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        patterns = tuple(options["patterns"])
        if not patterns or set(patterns) - set(PATTERNS):
            raise ConfigError(f"env.patterns is {list(patterns)}; expected some of {', '.join(PATTERNS)}.")
        mine = lambda question: split_of(question) == split  # noqa: E731
        for n in range(TRIES):
            if n % 20 == 0:
                where = {} if options["file"] else {"shop": rng.getrandbits(40)}
                data = _database(_seed(where), options["size"], options["file"])
            made = questions.draw(data, rng, patterns, mine)
            if made is not None and not guessable(answer := database.ask(data, made["sql"][0]).rows):
                question = made["question"].replace(f" of {sheet.NAME}", "").replace(f" in {sheet.NAME}", "")
                return {"question": question, "answer": [list(r) for r in answer], "ordered": made["ordered"], **where}
        raise ConfigError(f"no question for the {split} split was found in {TRIES:,} draws; expected another table.")

    @property
    def table(self) -> HeaderAndRows:
        if "table" in self.row:
            return self.row["table"]["header"], self.row["table"]["rows"]
        return _table(_seed(self.row), self.task.data["size"], self.task.data["file"])

    def observe(self) -> dict[Role, Observation]:
        if len(self.answers) == len(self.roles):
            return {}
        role = self.roles[len(self.answers)]
        view, limit = self.task.data["view"], self.task.data["shown"]
        words = [] if view == "image" else [sheet.text(*self.table, limit=limit)]
        media = () if view == "text" else (Media("image", drawn(*self.table, limit)),)
        now = [*words, f"Question: {self.row['question']}"]
        duty = f"Answer the question about the table. {_FORM}"
        if role == "checker":
            duty = f"Check the analyst's answer against the table. Reply agree, or give the right answer. {_FORM}"
            now.append(f"The analyst answers: {heard(self.answers[0] or '(nothing)', 1000)}")
        messages = (Message("system", duty), Message("user", "\n".join(now), media=media))
        allowed: tuple[Tool, ...] = ()
        if self.task.data["tools"]:
            allowed = (tools.sql(sheet_database(self.table)), tools.calculator())
        return {role: Observation(messages, fresh=True, phase=role, tools=allowed)}

    def caption(self, role: Role) -> str:
        return "" if self.task.data["view"] == "text" else sheet.text(*self.table, limit=self.task.data["shown"])

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"image"} if options.get("view") == "image" else ())

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        answer = answer_of(text)
        if role == "checker" and answer is None and _AGREE.fullmatch(text):
            answer = self.answers[0]
        elif answer is None:
            self.answers += (None,)
            return Rewards.process("illegal", {role: PENALTY})
        self.answers += (answer,)
        return Rewards.agent("analysis", {role: float(self.right(answer))}) if role == "analyst" else Rewards()

    def outcome(self) -> Rewards:
        over = len(self.answers) == len(self.roles)
        return Rewards.team("correct", float(over and self.right(self.answers[-1])))

    def right(self, answer: str | None) -> bool:
        return answer is not None and matches(self.row["answer"], answer, bool(self.row["ordered"]))

    def state(self) -> str:
        said = "; ".join(f"{r}: {heard(a or 'no answer')}" for r, a in zip(self.roles, self.answers, strict=False))
        return f"{self.row['question']}\n{said or 'nothing yet'}"

    def script(self, role: Role) -> str:
        return f"Answer: {written(self.row['answer'])}"


# -- answers ----------------------------------------------------------------------------------------------------------


def written(rows: Sequence[Sequence[Cell]]) -> str:
    return "; ".join(" | ".join("" if c is None else str(c) for c in row) for row in rows)


def answer_of(text: str) -> str | None:
    """The text after `Answer:`; None if there is none, if there are different ones, or if the reply is too long."""
    given = stated(text) if len(text) <= LONGEST else []
    return given[0] if len(given) == 1 else None


def matches(gold: Sequence[Sequence[Cell]], answer: str, ordered: bool) -> bool:
    given = [[_value(cell) for cell in row.split("|")] for row in answer.rstrip(" .;").split(";")]
    wanted = [[_value("" if c is None else str(c)) for c in row] for row in gold]
    if len(given) != len(wanted) or any(len(g) != len(w) for g, w in zip(given, wanted, strict=True)):
        return False
    if ordered:
        return _equal(given, wanted)
    # Exact keys keep numbers apart that are near each other, and rounded keys bring a number and its rounding together.
    return any(_equal(*(sorted(rows, key=partial(_place, digits)) for rows in (given, wanted))) for digits in (9, 1))


def _equal(given: Sequence[Sequence[float | str]], wanted: Sequence[Sequence[float | str]]) -> bool:
    return all(_alike(a, b) for g, w in zip(given, wanted, strict=True) for a, b in zip(g, w, strict=True))


def _value(cell: str) -> int | float | str:
    plain = " ".join(cell.strip().strip("\"'*`").replace("−", "-").split())
    sure = asserted(plain)  # a number may be affirmed, as in `exactly 5`
    if _NUMBER.fullmatch(sure) is None:
        return plain.casefold()
    digits = sure.replace(",", "").lstrip("$€£")
    if re.fullmatch(r"[-+]?\d{1,300}", digits):
        return int(digits)
    number = float(digits)
    return number if abs(number) < 1e300 else sure


def _place(digits: int, row: Sequence[float | str]) -> list[tuple[str, float]]:
    """A sort key for rows, independent of their order: by their words, then by their numbers."""
    numbers = [("", round(c, digits)) for c in row if not isinstance(c, str)]
    return [(c, 0.0) for c in row if isinstance(c, str)] + numbers


def _alike(a: float | str, b: float | str) -> bool:
    """Whether two cells are equal. Whole numbers are compared exactly; other numbers may be rounded to two places."""
    if isinstance(a, str) or isinstance(b, str) or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    near = abs(a - b) <= 0.005 + 1e-6 * abs(b)
    return near and (abs(a - b) < 0.5 or not float(b).is_integer())


def guessable(rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether an answer is a small whole number or a single word, or cannot be written in the form."""
    cells = [c for row in rows for c in row]
    if any(isinstance(c, str) and (set(c) & set("|;\n") or c != c.strip()) for c in cells):
        return True
    only = cells[0] if len(cells) == 1 else None
    return len(cells) == 1 and (isinstance(only, str) or (isinstance(only, int) and abs(only) < SMALL))


# -- tables -----------------------------------------------------------------------------------------------------------


def _seed(row: Mapping[str, Any]) -> int | None:
    return row.get("shop")


def _table(seed: int | None, size: int, file: str) -> HeaderAndRows:
    return sheet.read(file) if seed is None else (shop.HEADER, shop.table(seed, size))


@lru_cache(maxsize=1024)
def _database(seed: int | None, size: int, file: str) -> bytes:
    return sheet_database(_table(seed, size, file))


def sheet_database(table: HeaderAndRows) -> bytes:
    return sheet.database(*table)

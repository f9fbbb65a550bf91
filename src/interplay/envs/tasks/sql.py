"""Database query: a planner and a SQL writer answer a question with one query on a real SQLite or DuckDB database.

Roles         planner, writer; `team = "single"`: the writer alone.
Turns         the planner reads question and schema and says how to proceed. The writer reads all of this and writes
              the query. If a query fails, its error is shown and the writer tries again, up to `attempts` times in all.
Actions       planner: free text. writer: one SELECT, bare or in a ```sql block (the last one counts).
Tools         with `tools`, both may call `sql` inside their turn to look at the data.
Rewards       `match` (team, at the end): 1 if the query gives the same result as the gold query, in the database and in
              shadows of it with other contents, so that knowing the result is not enough; else 0. It is not scored
              (None) if no shadow was found in which the gold query gives another result than in the database.
              `illegal` (process): −0.1 for a reply without a query, or with a query that is refused or fails.
Data          prepared rows of kind sql (defog, spider, bird); with `database`, generated questions over that SQLite or
              DuckDB file (such as Chinook); else over a small shop drawn from the seed. A question is in one split
              only.
Checker       execution/database.py runs queries read-only, with limits on steps (DuckDB: seconds), rows and memory.
              rewards/query_match.py compares rows as a multiset, or in order if the question asks for one, and columns
              in any order. rewards/shadow.py makes the shadows. A row may have several gold queries.
Version       2
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.envs import tools
from interplay.envs.env import PENALTY, register
from interplay.envs.speech import heard
from interplay.envs.splits import TRIES, split_of, split_of_task
from interplay.envs.tasks import questions, shop
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.errors import ConfigError, DataError
from interplay.execution import database
from interplay.rewards.query_match import same
from interplay.rewards.reply import spoken
from interplay.rewards.shadow import shadows
from interplay.types import Message, Observation, Rewards, Role, Task, Tool

KINDS = ("sqlite", "duckdb")  # kinds of database files
PER_SHOP = 20  # questions that are tried over one shop before another one is drawn
_BLOCK = re.compile(r"```[ \t]*(?:sql|sqlite)?[ \t]*\n?(.*?)```", re.S | re.I)
_START = re.compile(r"\s*(?:--[^\n]*\n\s*)*(?:SELECT|WITH|VALUES)\b", re.I)


class Options(DataOptions):
    team: Literal["pair", "single"] = Field("pair", description="planner and writer, or the writer alone")
    attempts: int = Field(
        2, ge=1, le=10, description="queries that the writer may try; the first that runs ends its turn"
    )
    tools: bool = Field(False, description="let both roles look at the data with the tool sql")
    database: str = Field("", description="without data: a SQLite or DuckDB file to ask about; empty: a generated shop")
    size: int = Field(24, ge=4, le=400, description="number of purchases in the generated shop")
    patterns: list[str] = Field(list(questions.PATTERNS), description="patterns of the generated questions")


_STEPS = {"join": "join them", "where": "keep the rows asked for", "group": "group", "distinct": "count each once",
          "order": "sort", "limit": "take the first"}  # fmt: skip


@register("sql")
class SQL(DataEnv):
    Options = Options
    kind: ClassVar[str] = "sql"
    slow: ClassVar[bool] = True  # queries run in other processes
    success: ClassVar[str] = "match"
    reward_names: ClassVar[tuple[str, ...]] = ("match", "illegal")
    version: ClassVar[str] = "2"  # version 1 had one shadow, which could violate what the schema promises

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("writer",) if task.data["team"] == "single" else ("planner", "writer")
        self.plan: str | None = None
        self.tried = 0
        self.query: str | None = None  # the last query that could be parsed
        self.error = ""
        self.over = False

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        known = tuple(questions.PATTERNS)
        if not options["patterns"] or set(options["patterns"]) - set(known):
            raise ConfigError(f"env.patterns is {options['patterns']}; expected some of {', '.join(known)}.")
        mine = lambda question: split_of(question) == split  # noqa: E731
        for n in range(TRIES):
            if n % PER_SHOP == 0:
                where = {} if options["database"] else {"shop": rng.getrandbits(40)}
                data = _data(where, options, split)
            made = questions.draw(data, rng, tuple(options["patterns"]), mine)
            if made is not None and shadows(data, made["sql"][0], 1):
                return {**made, **where}  # a task whose result cannot be known without a query
        raise ConfigError(
            f"no question for the {split} split was found in {TRIES:,} draws; expected more env.patterns."
        )

    @property
    def data(self) -> bytes:
        return _data(self.row, self.task.data, split_of_task(self.task.seed))

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        role = "planner" if self.plan is None and len(self.roles) == 2 else "writer"
        now = [database.schema(self.data), f"Question: {self.row['question']}"]
        if role == "planner":
            duty = "You are the planner: tell the SQL writer in a few words which tables to use and how."
        else:
            kind = database.dialect(self.data)
            duty = f"You write the query: reply with one {kind} SELECT statement and nothing else."
            if self.plan is not None:
                now.append(f"The planner says: {self.plan}")
            if self.error:
                now.append(f"Your last query: {heard(self.query or '', 1000)}\nIt failed: {heard(self.error)}")
        messages = (Message("system", duty), Message("user", "\n".join(now)))
        allowed: tuple[Tool, ...] = (tools.sql(self.data),) if self.task.data["tools"] else ()
        phase = "plan" if role == "planner" else "repair" if self.tried else "write"
        return {role: Observation(messages, fresh=True, phase=phase, tools=allowed)}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "planner":
            self.plan = heard(text)
            return Rewards()
        self.tried += 1
        self.query = query_of(text)
        self.error = "there is no SELECT in the reply"
        if self.query is not None:
            self.error = database.run(self.data, self.query).error
        self.over = not self.error or self.tried >= self.task.data["attempts"]
        return Rewards.process("illegal", {role: PENALTY}) if self.error else Rewards()

    def outcome(self) -> Rewards:
        if not self.over or self.error or self.query is None:
            return Rewards.team("match", 0.0)
        right = self._matches(self.query)
        return Rewards.team("match", None if right is None else float(right))

    def _matches(self, query: str) -> bool | None:
        """Whether the query equals a gold query in the database and its shadows; None if no shadow can tell."""
        found, ordered, told = database.run(self.data, query), bool(self.row.get("ordered")), False
        for gold in self.row["sql"]:
            others = shadows(self.data, gold)
            told = told or bool(others)
            if others and same(database.ask(self.data, gold), found, ordered):
                pairs = ((database.ask(other, gold), database.run(other, query)) for other in others)
                if all(same(wanted, given, ordered) for wanted, given in pairs):
                    return True
        return False if told else None

    def state(self) -> str:
        said = "nothing yet" if self.query is None else heard(self.query, 1000)
        plan = "" if self.plan is None else f"\nplan: {self.plan}"
        error = f"\nit failed: {heard(self.error)}" if self.error else ""
        return f"{self.row['question']}{plan}\nattempt {self.tried} of {self.task.data['attempts']}: {said}{error}"

    def script(self, role: Role) -> str:
        return planned(self.data, str(self.row["sql"][0])) if role == "planner" else str(self.row["sql"][0])

    def script_calls(self, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The writer tries its query before it submits it."""
        return (("sql", {"query": self.script(role)}),) if role == "writer" and self.task.data["tools"] else ()


def planned(data: bytes, gold: str) -> str:
    """A query in a planner's words: the tables and columns that it names, and what it does with them."""
    words = {word.lower() for word in re.findall(r"\w+", gold)}
    named = {t: [c.name for c in columns if c.name.lower() in words] for t, columns in database.tables(data).items()}
    parts = [
        f"{table} ({', '.join(columns)})" if columns else table
        for table, columns in named.items()
        if table.lower() in words
    ]
    steps = [step for word, step in _STEPS.items() if word in words]
    return "; ".join([f"Use {' and '.join(parts) or 'no table'}", *steps]) + "."


def query_of(text: str) -> str | None:
    """The query in a reply, after any thoughts: its last block, or all of it; None if that is not a query."""
    if len(text) > database.TEXT:
        return None
    text = spoken(text)
    blocks = _BLOCK.findall(text)
    query = (blocks[-1] if blocks else text).strip().rstrip(";").strip()
    return query if _START.match(query) else None


def _data(row: Mapping[str, Any], options: Mapping[str, Any], split: str) -> bytes:
    if "shop" in row:
        return shop.database(row["shop"], options["size"])
    if "db" in row:
        source = SQL.source(options, split)
        if source is None:
            raise ConfigError(
                f"the row names the database '{row['db']}', but env.data is empty; expected the folder with this "
                "database."
            )
        carried = source.manifest["attached"]
        name = next((n for n in (*(f"{row['db']}.{kind}" for kind in KINDS), row["db"]) if n in carried), None)
        if name is None:
            raise DataError(
                f"a row asks about the database '{row['db']}', but '{source.folder}' has no file of it; prepare the "
                "data again."
            )
        return database.read(source.file(name))
    return database.read(options["database"])

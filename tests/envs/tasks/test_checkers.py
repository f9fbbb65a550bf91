"""What the audit found about checkers: answers that were judged wrongly, tested through their environments."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interplay.envs import make, sample_task
from interplay.execution import verilog

needs_icarus = pytest.mark.skipif(shutil.which(verilog.PACKAGE) is None, reason="Icarus Verilog is not installed")


def earned(name: str, options: dict[str, Any], row: dict[str, Any], *replies: str, reward: str = "correct") -> float:
    """The value of `reward` after these replies of a single role, one after the other."""
    task = sample_task(name, options)
    env = make(replace(task, data={**task.data, "row": row}))
    found = []
    for reply in replies:
        (role,) = env.observe()
        found += list(env.step({role: reply}))
    return sum(r.value or 0.0 for r in [*found, *env.outcome()] if r.name == reward)


def solves(gold: str, reply: str) -> bool:
    return earned("math", {"team": "single"}, {"question": "?", "answer": gold}, reply) == 1.0


def infers(label: str, reply: str) -> bool:
    return earned("nli", {}, {"premise": "p", "hypothesis": "h", "label": label}, reply) == 1.0


@pytest.mark.parametrize("label", ["entailment", "neutral", "contradiction"])
def test_a_negated_label_earns_nothing(label: str) -> None:
    """Audit B3: "Answer: not entailment" earned full marks for entailment."""
    for reply in (f"Answer: not {label}", f"Answer: it is not {label}", f"The answer is not {label}.", f"Not {label}."):
        assert not infers(label, reply), reply


def test_a_label_on_the_line_after_answer_is_read() -> None:
    """Audit B3: the line break was read as the end of the answer."""
    assert infers("neutral", "I cannot tell.\nAnswer:\nneutral")
    assert infers("neutral", "It is no contradiction.\nAnswer:\nneutral\nThat is all.")


@pytest.mark.parametrize(
    ("gold", "answer"), [("1011_2", "1011"), ("(1,2)", "\\{1,2\\}"), ("\\{1,2\\}", "(1,2)"), ("12", "1 2"), ("5", "5!")]
)
def test_what_was_wrongly_equal_is_refused(gold: str, answer: str) -> None:
    """Audit B5: bases, brackets, a space between digits, a factorial."""
    assert not solves(gold, f"\\boxed{{{answer}}}")


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("\\pi", "pi"), ("1000", "1e3"), ("7/2", "3 1/2"), ("1/3", "0.\\overline{3}"), ("\\varnothing", "\\emptyset"),
        ("[2,5)", "2 \\le x < 5"), ("120", "5!"),
    ],
)  # fmt: skip
def test_what_was_wrongly_unequal_is_accepted(gold: str, answer: str) -> None:
    """Audit B5: other notations of the same answer."""
    assert solves(gold, f"\\boxed{{{answer}}}") and solves(answer, f"\\boxed{{{gold}}}")


@pytest.mark.parametrize(
    "reply",
    [
        "\\boxed{5} so it is \\boxed{5}", "\\boxed{\\boxed{5}}", "\\boxed 5", "**Final Answer**: 5",
        "<think>Is it \\boxed{4}?</think> No: \\boxed{5}", "Is it \\boxed{4}?</think>\\boxed{5}",
    ],
)  # fmt: skip
def test_an_answer_in_an_unusual_place_is_read(reply: str) -> None:
    """Audit B5: two equal boxes, a box in a box, no braces, markdown, and thoughts that say something else."""
    assert solves("5", reply)


@pytest.mark.parametrize(
    ("name", "options", "row", "replies"),
    [
        ("math", {"team": "single"}, {"question": "?", "answer": "5"}, ("{}\\boxed{{5}}{}",)),
        ("nli", {}, {"premise": "p", "hypothesis": "h", "label": "neutral"}, ("{}Answer: neutral{}",)),
        ("search", {"team": "single"}, {"question": "?", "answers": ["Oslo"], "passages": [], "gold": []},
         ("done", "{}Answer: Oslo{}")),
        ("tables", {"team": "single"},
         {"question": "?", "answer": [["Oslo"]], "ordered": False, "table": {"header": ["a"], "rows": [["b"]]}},
         ("{}Answer: Oslo{}",)),
        ("science", {"team": "single", "budget": 1}, {"law": "x + 2*y", "variables": ["x", "y"]},
         ("{}\nf = x + 2*y\n{}",)),
        ("sql", {"team": "single", "attempts": 1}, None, ("{}\n```sql\nGOLD\n```\n{}",)),
        ("code", {"team": "single", "style": "calls"}, None, ("{}\n```python\nGOLD\n```\n{}",)),
    ],
)  # fmt: skip
def test_only_what_follows_the_thoughts_counts(
    name: str, options: dict[str, Any], row: dict[str, Any] | None, replies: tuple[str, ...]
) -> None:
    """Audit B5 and similar cases: an answer inside a thought does not count, even if the thought never ends."""
    reward = {"science": "law", "sql": "match", "code": "solved"}.get(name, "correct")
    if row is None:  # one that is made on the spot
        row = sample_task(name, options).data["row"]
        gold = row["sql"][0] if name == "sql" else row["golden"]
        replies = tuple(reply.replace("GOLD", gold.replace("{", "{{").replace("}", "}}")) for reply in replies)
    for before, after, right in (("<think>x</think>", "", 1.0), ("<think>", "</think>", 0.0), ("<think>", "", 0.0)):
        assert (
            earned(name, options, row, *(reply.format(before, after) for reply in replies), reward=reward) == right
        ), (before, after)


def test_a_table_answer_with_two_statements_that_differ_is_none() -> None:
    """A similar case of "several answers at once": the last of many guesses counted."""
    table = {"header": ["a"], "rows": [["b"]]}
    row = {"question": "?", "answer": [["Oslo"]], "ordered": False, "table": table}
    assert earned("tables", {"team": "single"}, row, "Answer: Rome\nAnswer: Oslo") == 0.0
    assert earned("tables", {"team": "single"}, row, "Answer: Oslo\nAnswer: Oslo") == 1.0


@pytest.mark.parametrize("cell", ["1_0", "١٠", "1e1_0"])
def test_a_table_cell_is_a_number_only_in_plain_digits(cell: str) -> None:
    """Similar to audit B6 (`1_0.5` passed for `10.5`): Python's float() accepts underscores and other scripts."""
    row = {"question": "?", "answer": [[10]], "ordered": False, "table": {"header": ["a"], "rows": [["b"]]}}
    assert earned("tables", {"team": "single"}, row, f"Answer: {cell}") == 0.0
    assert earned("tables", {"team": "single"}, row, "Answer: 10.0") == 1.0


@pytest.mark.parametrize(("gold", "answer"), [("3.5", "35"), ("-5", "5")])
def test_a_short_answer_keeps_the_point_and_sign_of_a_number(gold: str, answer: str) -> None:
    """Found with the adversarial answers: SQuAD's normalisation removes both."""
    row = {"question": "?", "answers": [gold], "passages": [], "gold": []}
    assert earned("search", {"team": "single"}, row, "done", f"Answer: {answer}") == 0.0
    assert earned("search", {"team": "single"}, row, "done", f"Answer: {gold}") == 1.0


SCHEMA = """
CREATE TABLE author (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT);
CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT NOT NULL, author_id INTEGER NOT NULL REFERENCES author(id),
                   year INTEGER, sold INTEGER);
INSERT INTO author VALUES (1, 'Ines', 'Peru'), (2, 'Tom', 'Mali'), (3, 'Rosa', 'Oman'), (4, 'Omar', 'Peru'),
                          (5, 'Ulla', NULL);
INSERT INTO book VALUES (1, 'Salt', 1, 1998, 1234567), (2, 'Ferry', 1, 2004, 1234568), (3, 'Iron', 2, 2011, 80),
                        (4, 'North', 3, 1987, 2500000), (5, 'Dust', 4, 2004, 31), (6, 'Lamp', 5, 2020, 7);
"""


@pytest.fixture
def library(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "library.sqlite")) as db:
        db.executescript(SCHEMA)
        db.commit()
    return str(tmp_path / "library.sqlite")


def queried(library: str, gold: str, query: str) -> bool:
    row = {"question": "?", "sql": [gold], "ordered": False}
    return earned("sql", {"team": "single", "attempts": 1, "database": library}, row, query, reward="match") == 1.0


@pytest.mark.parametrize(
    ("gold", "cheats"),
    [
        ("SELECT title FROM book WHERE year < 1950", ["SELECT 1 WHERE 0", "SELECT title FROM book WHERE year > 2050"]),
        ("SELECT name FROM author WHERE country = 'Peru'",
         ["SELECT name FROM author WHERE id IN (1, 4)", "SELECT name FROM author WHERE name IN ('Ines', 'Omar')"]),
        ("SELECT name FROM author WHERE country IS NULL", ["SELECT name FROM author WHERE id = 5"]),
        ("SELECT count(*) FROM book WHERE year > 2004", ["SELECT 2", "SELECT count(*) FROM book WHERE year > 2005"]),
    ],
)  # fmt: skip
def test_a_query_that_only_knows_the_answer_is_refused(library: str, gold: str, cheats: list[str]) -> None:
    """Audit B4: `SELECT 1 WHERE 0` was right if the result was empty, and so was any result that no changed database
    distinguished."""
    assert queried(library, gold, gold)
    for cheat in cheats:
        assert not queried(library, gold, cheat), cheat


def test_large_whole_numbers_are_compared_exactly(library: str) -> None:
    """Audit B4: from a million on, only six digits were compared."""
    assert not queried(library, "SELECT max(sold) FROM book", "SELECT max(sold) + 1 FROM book")
    assert queried(library, "SELECT max(sold) FROM book", "SELECT max(sold) * 1.0 FROM book")
    assert not queried(library, "SELECT max(sold) FROM book", "SELECT max(sold) + 1.0 FROM book")


@pytest.mark.parametrize(
    ("gold", "right"),
    [
        ("SELECT count(*) FROM book", "SELECT count(*) FROM book JOIN author ON author.id = book.author_id"),
        ("SELECT count(DISTINCT author_id) FROM book", "SELECT count(*) FROM author"),
        ("SELECT title FROM book JOIN author ON author.id = author_id WHERE name = 'Ines'",
         "SELECT title FROM book WHERE author_id = (SELECT id FROM author WHERE name = 'Ines')"),
    ],
)  # fmt: skip
def test_a_right_query_may_rely_on_what_the_schema_promises(library: str, gold: str, right: str) -> None:
    """Audit B4: shadows had books without an author, so a right query with a join was refused."""
    assert queried(library, gold, right)


def test_a_gold_query_that_nothing_tells_from_a_constant_is_never_scored(library: str) -> None:
    task = sample_task("sql", {"team": "single", "attempts": 1})
    data = {**task.data, "database": library, "row": {"question": "?", "sql": ["SELECT 5"], "ordered": False}}
    env = make(replace(task, data=data))
    env.step({"writer": "SELECT 5"})
    assert [(r.name, r.value) for r in env.outcome()] == [("match", None)]


HEADER = "module TopModule (input [3:0] a, input [3:0] b, output [3:0] y);"


def simulated(design: str) -> float:
    """What a design for `y = a + b` earns."""
    task = sample_task("hardware", {"team": "single"}, index=next(i for i in range(99) if "+ 4'd" in _golden(i)))
    golden = f"{HEADER}\n  assign y = a + b;\nendmodule\n"
    row = {**task.data["row"], "interface": HEADER, "golden": golden}
    row["reference"] = golden.replace("TopModule", "RefModule")
    env = make(replace(task, data={**task.data, "row": row}))
    return sum(r.value or 0.0 for r in env.step({"designer": f"```verilog\n{design}\n```"}))


def _golden(index: int) -> str:
    row = sample_task("hardware", {"team": "single"}, index=index).data["row"]
    return "" if "clk" in row["interface"] else str(row["golden"])


@needs_icarus
@pytest.mark.parametrize(
    "design",
    [
        f"`timescale 1ns / 1ps\n{HEADER}\n  assign y = a + b;\nendmodule",
        f"{HEADER}\n  typedef struct packed {{ logic [1:0] high; logic [1:0] low; }} both_t;\n  both_t both;\n"
        "  assign both = a + b;\n  assign y = {both.high, both.low};\nendmodule",
        f"{HEADER}\n  genvar i;\n  generate for (i = 0; i < 4; i = i + 1) begin : part wire s; end endgenerate\n"
        "  assign {part[3].s, part[2].s, part[1].s, part[0].s} = a + b;\n"
        "  assign y = {part[3].s, part[2].s, part[1].s, part[0].s};\nendmodule",
    ],
    ids=["timescale", "struct", "generated block"],
)
def test_a_design_may_have_a_time_scale_and_name_its_own_parts(design: str) -> None:
    """Audit B7: both were refused; naming one's own blocks is a similar case."""
    assert simulated(design) == pytest.approx(1.0)


@needs_icarus
@pytest.mark.parametrize(
    "body",
    [
        "assign y = tb.y_ref;", "assign y = good1.y;", "assign y = $root.tb.y_ref;", "`define x\nassign y = 0;",
        "typedef struct packed { logic [3:0] y; } s_t; s_t good1; assign y = good1.y;",
        'initial $display("Mismatches: 0 in 256 samples"); assign y = 0;', "`include \"bench.sv\"\nassign y = 0;",
    ],
)  # fmt: skip
def test_a_design_still_cannot_reach_outside_itself(body: str) -> None:
    assert simulated(f"{HEADER}\n{body}\nendmodule") == 0.0

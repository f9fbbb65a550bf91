"""Structured data: the scripted team is always right, cheats never are; CSV and Parquet files can be asked about."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playing import earned, expert

from interplay.envs import make, sample_task
from interplay.envs.check import check
from interplay.envs.tasks import sheet
from interplay.envs.tasks.drawn import drawn
from interplay.envs.tasks.prepare import prepare
from interplay.envs.tasks.tables import Tables, answer_of, guessable, matches
from interplay.errors import ConfigError, DataError
from interplay.types import Observation

Say = Callable[[Tables, str, Observation], str]


def play(say: Say, options: dict[str, Any] | None = None, split: str = "train", tasks: int = 15) -> list[float]:
    return earned("tables", tasks, say, options or {}, split)


CHEATS: dict[str, Say] = {
    "echo": lambda env, role, o: "\n".join(m.content for m in o.messages),
    "empty": lambda env, role, o: "",
    "format only": lambda env, role, o: "Answer: ",
    "agreement": lambda env, role, o: "agree",
    "ignores the givens": lambda env, role, o: "Answer: 100",
    "hard-coded": lambda env, role, o: "Answer: 42",
    "every cell": lambda env, role, o: "Answer: " + "; ".join(" | ".join(map(str, r)) for r in env.table[1]),
    "giant": lambda env, role, o: "1 " * 10_000 + expert(env, role, o),
    "many answers": lambda env, role, o: "Answer: " + " or ".join(str(i) for i in range(300)),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_earn_nothing(cheat: str) -> None:
    assert set(play(CHEATS[cheat], tasks=25)) == {0.0}


@pytest.mark.parametrize("options", [{}, {"team": "single", "size": 40}, {"tools": True}])
def test_the_scripted_team_is_always_right(options: dict[str, Any]) -> None:
    assert set(play(expert, options) + play(expert, options, "test")) == {1.0}


def test_the_environment_conforms() -> None:
    findings = check("tables", {"tools": True}, episodes=4)
    assert [f for f in findings if not f.passed] == []


def test_the_checker_has_the_last_word() -> None:
    def final(analyst: str, checker: str) -> list[tuple[str, float | None]]:
        env = make(sample_task("tables", {}))
        assert isinstance(env, Tables)
        gold = env.script("analyst")
        rewards = env.step({"analyst": analyst.replace("GOLD", gold)})
        assert "The analyst answers:" in env.observe()["checker"].messages[1].content
        rewards += env.step({"checker": checker.replace("GOLD", gold)})
        return [(r.name, r.value) for r in rewards + env.outcome()]

    assert final("GOLD", "agree") == [("analysis", 1.0), ("correct", 1.0)]
    assert final("GOLD", "GOLD") == [("analysis", 1.0), ("correct", 1.0)]
    assert final("GOLD", "Answer: no") == [("analysis", 1.0), ("correct", 0.0)]
    assert final("Answer: no", "GOLD") == [("analysis", 0.0), ("correct", 1.0)]
    assert final("Answer: no", "I agree.") == [("analysis", 0.0), ("correct", 0.0)]
    assert final("no idea", "agree") == [("illegal", -0.1), ("correct", 0.0)]
    assert final("GOLD", "well") == [("analysis", 1.0), ("illegal", -0.1), ("correct", 0.0)]


@pytest.mark.parametrize(
    ("gold", "answer", "ordered", "right"),
    [
        ([[12.345]], "12.35", False, True),
        ([[12.345]], "12.4", False, False),
        ([[1234.5]], "$1,234.50", False, True),
        ([[0.1]], "0.11", False, False),
        ([[3.14159]], "3.14", False, True),
        ([[3.14159]], "3.15", False, False),
        ([["Ada", 3], ["Ben", 4]], "Ben | 4; ada | 3", False, True),
        ([["Ada", 3], ["Ben", 4]], "Ben | 4; ada | 3", True, False),
        ([["Ada", 3], ["Ben", 4]], "Ada | 4; Ben | 3", False, False),
        ([["Ada", 3], ["Ben", 4]], "Ada | 3", False, False),
        ([["Ada"]], "Ada | Ben", False, False),
        ([[None]], "", False, True),
        ([[7.02], [7.04]], "7.04; 7.02", False, True),
        ([["Ada", 7.021], ["Ada", 7.044]], "Ada | 7.04; Ada | 7.02", False, True),
        ([[7.02], [7.04]], "7.04; 7.04", False, False),
        ([[5]], "five", False, False),
        ([[5]], "inf", False, False),
        ([[5]], "nan", False, False),
    ],
)
def test_answers_are_compared_cell_by_cell(gold: list[list[Any]], answer: str, ordered: bool, right: bool) -> None:
    assert matches(gold, answer, ordered) is right


def test_a_number_may_be_affirmed_and_not_doubted() -> None:
    assert all(matches([[7]], said, False) for said in ("exactly 7", "7 in total", "only 7"))
    assert not any(matches([[7]], said, False) for said in ("probably 7", "7 I think", "at least 7", "7 guess"))
    assert not matches([["Kids"]], "Just Kids", False) and matches([["Just Kids"]], "just kids", False)


def test_one_answer_is_read_or_none() -> None:
    assert answer_of("The answer is: 2") == "2" and answer_of("Answer: 1\nNo. The answer is: 2") is None
    assert answer_of("Answer:") is None and answer_of("2") is None


def test_what_is_too_easily_guessed_is_not_asked() -> None:
    assert guessable([[3]]) and guessable([["Ada"]]) and guessable([["a|b"], ["c"]])
    assert not guessable([[300]]) and not guessable([[3.25]]) and not guessable([["Ada", 3]])


def test_tools_compute_over_the_sheet() -> None:
    env = make(sample_task("tables", {"tools": True}))
    sql, calculator = env.observe()["analyst"].tools
    assert sql.run(query="SELECT count(*) AS n FROM sheet") == "n\n12"
    assert calculator.run(expression="(2 + 3) * 4") == "20"
    assert calculator.run(expression="__import__('os')").startswith("error: ")


ROWS = [(i, f"name{i % 7}", "red" if i % 3 else "blue", i * 1.5 + 20) for i in range(60)]
HEADER = ("number", "who", "colour", "weight")


def test_questions_over_a_csv_file(tmp_path: Path) -> None:
    file = tmp_path / "sales.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([HEADER, *ROWS])
    header, rows = sheet.read(str(file))
    assert header == HEADER and rows == tuple(ROWS)
    options = {"file": str(file), "shown": 5}
    assert set(play(expert, options)) == {1.0}
    assert "… (60 rows)" in make(sample_task("tables", options)).observe()["analyst"].messages[1].content


def test_questions_over_a_parquet_file(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "sales.parquet"
    columns = {name: [row[i] for row in ROWS] for i, name in enumerate(HEADER)}
    parquet.write_table(pyarrow.table(columns), file)
    assert sheet.read(str(file)) == (HEADER, tuple(ROWS))
    assert set(play(expert, {"file": str(file)}, tasks=5)) == {1.0}


def test_wrong_files_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        sample_task("tables", {"file": str(tmp_path / "none.csv")})
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match="line 3 has 1 cells; expected 2"):
        sample_task("tables", {"file": str(tmp_path / "bad.csv")})
    (tmp_path / "bad.parquet").write_text("a,b")
    with pytest.raises((DataError, ConfigError)):
        sample_task("tables", {"file": str(tmp_path / "bad.parquet")})


def test_prepared_rows_bring_their_table(tmp_path: Path) -> None:
    source = tmp_path / "test.jsonl"
    source.write_text(
        '{"id": "nt-1", "question": "who was second?", "answers": ["Ben"],'
        ' "table": {"header": ["place", "who"], "rows": [["1", "Ada"], ["2", "Ben"]], "name": "t"}}\n'
    )
    prepare("wikitablequestions", source, tmp_path / "wtq")
    env = make(sample_task("tables", {"data": str(tmp_path / "wtq"), "team": "single"}, "test"))
    assert "2,Ben" in env.observe()["analyst"].messages[1].content
    env.step({"analyst": "Answer: Ben"})
    assert [r.value for r in env.outcome()] == [1.0]


def test_the_table_can_be_shown_as_a_picture_with_every_cell_in_it() -> None:
    image = pytest.importorskip("PIL.Image")
    texts, pictures = set(), set()
    for index in range(4):
        task = sample_task("tables", {"view": "image", "team": "single", "size": 6}, index=index)
        env = make(task)
        assert isinstance(env, Tables)
        message = env.observe()["analyst"].messages[-1]
        assert message.content == f"Question: {env.row['question']}"
        assert env.caption("analyst").splitlines()[0].split(",") == list(env.table[0])
        texts.add(env.caption("analyst"))
        pictures.add(message.media[0].digest)
        width, height = image.open(io.BytesIO(message.media[0].data)).size
        assert height == 7 * 21 + 1 and width > 100, "a line of 21 pixels for the header and for each of 6 rows"
    assert len(texts) == len(pictures) == 4
    both = make(sample_task("tables", {"view": "both", "size": 6})).observe()["analyst"].messages[-1]
    assert both.media and "Question: " in both.content and "," in both.content.splitlines()[0]
    assert Tables.needs({"view": "image"}) == {"image"} and not Tables.needs({"view": "both"})


def test_a_changed_cell_changes_the_picture_and_long_tables_are_cut() -> None:
    pytest.importorskip("PIL")
    header, rows = ("city", "people"), [("Bern", 134), ("Rome", None)]
    first = drawn(header, rows, 50)
    assert first == drawn(header, list(rows), 50) != drawn(header, [("Bern", 135), ("Rome", None)], 50)
    assert drawn(header, rows, 1) != drawn(header, rows[:1], 1), "it says that there are more rows"

"""The checkers are measured on the adversarial answers of the repository; docs/tasks.md shows the same table."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ADVERSARIAL = Path(__file__).parents[2] / "benchmarks" / "adversarial"
QUICK = ("nli", "search", "tables", "science", "sql")
SLOW = ("math", "code", "debugging", "verilog")


@pytest.fixture(scope="module")
def checkers(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/checkers.py")


@pytest.mark.parametrize("checker", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_right_answers_are_accepted_and_wrong_ones_refused(checkers: ModuleType, checker: str) -> None:
    """No wrong answer is accepted, and at most 2% of the right ones are refused, whoever wrote them."""
    counts, failed = checkers.measured(list(checkers.adversarial(checker)))
    assert [a for a in failed if not a.right] == []
    assert all(count.fine for count in counts.values()), [a.replies[-1] for a in failed]


@pytest.mark.parametrize("checker", [*QUICK, *SLOW])
def test_there_are_enough_answers_and_half_were_written_blind(checker: str) -> None:
    """600 wrong and 300 right answers for math, 100 and 50 for every other checker; no answer is counted twice."""
    cases = json.loads((ADVERSARIAL / f"{checker}.json").read_text(encoding="utf-8"))["cases"]
    told = Counter((case["right"], case["written"]) for case in cases)
    for right, enough in ((False, 600 if checker == "math" else 100), (True, 300 if checker == "math" else 50)):
        blind, seen = told[right, "blind"], told[right, "seen"]
        assert blind + seen >= enough and blind >= enough / 2
    told_apart = [json.dumps({**case, "written": "", "kind": ""}, sort_keys=True) for case in cases]
    assert len(set(told_apart)) == len(told_apart)


def test_every_checker_is_measured(checkers: ModuleType) -> None:
    assert set(checkers.CHECKERS) == {*QUICK, *SLOW} == {file.stem for file in ADVERSARIAL.glob("*.json")}


@pytest.mark.parametrize("checker", [*QUICK, *SLOW])
def test_the_docs_show_a_row_for_every_set_of_answers(checker: str) -> None:
    """With as many answers as there are now."""
    cases = json.loads((ADVERSARIAL / f"{checker}.json").read_text(encoding="utf-8"))["cases"]
    told = Counter((case["written"], case["right"]) for case in cases)
    docs = (ADVERSARIAL.parents[1] / "docs" / "tasks.md").read_text(encoding="utf-8")
    for written in ("blind", "seen"):
        shown = re.search(rf"^\| {checker} \| {written} \| \d+ of (\d+) \| \d+ of (\d+) \|$", docs, re.MULTILINE)
        assert shown is not None and tuple(map(int, shown.groups())) == (told[written, True], told[written, False])


def test_the_table_says_what_was_refused(checkers: ModuleType) -> None:
    """A checker that accepts a wrong answer fails the command."""
    right = next(a for a in checkers.adversarial("nli") if a.right)
    counts, failed = checkers.measured([right, checkers.replace(right, right=False)])
    assert len(failed) == 1 and not counts["blind"].fine and str(counts["blind"]) == "1 of 1 | 0 of 1"

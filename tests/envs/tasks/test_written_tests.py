"""A tester's tests: a test that the problem shows is not new, and players read and write plain assertions."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from interplay.agents.bots import make_bot
from interplay.config import validate
from interplay.envs import make, sample_task
from interplay.envs.tasks.code import Code
from interplay.envs.tasks.data import DataRow, lookup_format
from interplay.types import Role

GOLDEN = "def pick(xs, n):\n    return tuple(sorted(xs)[:n])"


def apps() -> DataRow:
    """A row as in MapCoder's selection of APPS: one example is shown, and tests are wrapped."""
    cases = [([[3, 1, 2], 2], [1, 2]), ([[5, 4], 1], [4]), ([[9, 8, 7], 3], [7, 8, 9]), ([[6, 6, 1], 1], [1])]
    both = {"fn_name": "pick", "inputs": [c[0] for c in cases], "outputs": [[c[1]] for c in cases]}
    raw = {
        "question": "The n smallest, in order.",
        "starter_code": "def pick(xs, n):",
        "input_output": json.dumps(both),
    }
    made = validate(lookup_format("apps"), {**raw, "solutions": json.dumps([GOLDEN])}).row()
    assert made is not None
    return {**made, "examples": made["tests"][:1], "tests": made["tests"][1:]}


def humaneval() -> DataRow:
    prompt = 'def double(n):\n    """Twice n.\n    >>> double(21)\n    42\n    """\n'
    test = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-3) == -6\n"
    raw = {"prompt": prompt, "entry_point": "double", "canonical_solution": "    return 2 * n\n", "test": test}
    made = validate(lookup_format("humaneval"), raw).row()
    assert made is not None
    return made


def contest() -> DataRow:
    question = "Add two numbers.\n\nExamples\n\nInput\n\n1 2\n\nOutput\n\n3"
    tests = [["4 5", "9"], ["0 0", "0"], ["-1 7", "6"]]
    golden = "print(sum(map(int, input().split())))"
    return {"question": question, "style": "stdio", "tests": tests, "examples": [], "golden": golden}


def game(row: DataRow, **options: Any) -> Code:
    task = sample_task("code", {"rounds": 1, "tests": 2, **options})
    env = make(replace(task, data={**task.data, "row": row}))
    assert isinstance(env, Code)
    return env


def earns(env: Code, tests: str) -> float:
    rewards = env.step({"coder": env.script("coder"), "tester": tests})
    return sum(r.value or 0.0 for r in rewards if r.role == "tester")


def prompt(env: Code, role: Role) -> str:
    return "\n".join(m.content for m in env.observe()[role].messages)


@pytest.mark.parametrize(
    ("row", "copies"),
    [
        (apps(), ["assert pick([3, 1, 2], 2) == [1, 2]", "assert pick(*[[3, 1, 2], 2]) == [1, 2]",
                  "assert pick([3,1,2],2) == [1,2]", "assert pick([3, 1, 2], 2) == (1, 2)",
                  "assert pick((3, 1, 2), 2) == [1, 2]", "assert pick([3.0, True, 2], 2) == [1, 2]"]),
        (humaneval(), ["assert double(21) == 42", "assert double(*[21]) == 42", "assert double(21.0) == 42"]),
        (contest(), ['{"input": "1 2", "output": "3"}', '{"input": "1  2", "output": "3"}',
                     '{"input": "01 +2", "output": "3"}']),
    ],
    ids=["wrapped", "docstring", "statement"],
)  # fmt: skip
def test_copying_what_was_shown_pays_nothing(row: DataRow, copies: list[str]) -> None:
    """Audit B2: an example was not recognised if the data set wraps it. Similar: docstrings, statements, and the same
    values written in another way."""
    for copied in copies:
        assert earns(game(row), copied) == 0.0, copied


def test_prompts_do_not_show_a_helper_that_nobody_defined() -> None:
    """Audit B2: `plain` is defined in the setup of the tests, which no player sees."""
    env = game(apps())
    for role in env.roles:
        assert "plain(" not in prompt(env, role) and "assert pick([3, 1, 2], 2) == [1, 2]" in prompt(env, role)


@pytest.mark.parametrize("row", [apps(), humaneval(), contest()], ids=["wrapped", "docstring", "statement"])
def test_the_scripted_tester_writes_tests_that_count(row: DataRow) -> None:
    """Audit B2: it wrote no tests for wrapped rows. The golden program returns a tuple, and the test says a list."""
    env = game(row)
    written = make_bot("expert", "code").act(env, "tester", random.Random(0))
    assert len(written.split("\n")) == 2 and earns(env, written) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "line",
    [
        "assert pick([1e999], 1) == [1]", "assert pick({1: -1e999}, 1) == 1", "assert pick(1e999 - 1e999j, 1) == 1",
        "assert pick(..., 1) == 1", "assert pick([1], 1) == 1e999", f"assert pick([0x{'f' * 550}], 1) == 1",
        "assert pick('" + "\\a" * 200 + "', 1) == 1",
    ],
)  # fmt: skip
def test_a_test_whose_values_have_no_plain_form_is_no_test(line: str) -> None:
    """Infinity and `...` are written as literals, but printed as names, and some values are printed longer than a test
    may be. Reading them again raised an error in the trainer, so that a tester could have the episode dropped."""
    assert earns(game(apps()), line) == 0.0


def test_methods_are_called_on_a_new_object() -> None:
    starter = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "
    calls = [{"input": f"{a}\n{b}", "output": str(a + b)} for a, b in ((1, 2), (3, 4), (-5, 9))]
    raw = {"question_content": "Add.", "starter_code": starter, "public_test_cases": json.dumps(calls[:1])}
    made = validate(lookup_format("livecodebench"), {**raw, "private_test_cases": json.dumps(calls[1:])}).row()
    assert made is not None
    golden = "class Solution:\n    def add(self, a, b):\n        return a + b"
    env = game({**made, "golden": golden})
    assert "assert Solution().add(arguments) == value" in prompt(env, "tester")
    assert earns(env, "assert Solution().add(1, 2) == 3") == 0.0  # as shown
    assert earns(game({**made, "golden": golden}), "assert Solution().add(7, 8) == 15") > 0.0

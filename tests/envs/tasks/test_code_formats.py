"""The public formats of programming problems: rows as published, by hand and from the real samples."""

from __future__ import annotations

import base64
import json
import os
import pickle
import random
import zlib
from pathlib import Path
from typing import Any

import pytest

from interplay.config import validate
from interplay.envs.tasks.data import DataRow, Prepared, lookup_format
from interplay.envs.tasks.hardware import Hardware
from interplay.envs.tasks.prepare import prepare
from interplay.envs.tasks.problems import Bench, Problem
from interplay.execution import verilog
from interplay.types import Task

DATA = Path(os.environ["INTERPLAY_DATA"]) if os.environ.get("INTERPLAY_DATA") else None
real = pytest.mark.skipif(DATA is None, reason="INTERPLAY_DATA names no folder of real samples")
PATIENT, BENCH = Bench(seconds=20), Bench(seconds=1)


def row(name: str, raw: dict[str, Any]) -> DataRow:
    made = validate(lookup_format(name), raw).row()
    assert made is not None
    return made


def solved(made: DataRow, program: str) -> bool:
    return Problem.of(made).try_(BENCH, program).solved


def test_livecodebench() -> None:
    cases = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}, {"input": "4 4", "output": "8"}]
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()
    raw = {"question_content": "Add.", "public_test_cases": json.dumps(cases[:1]), "private_test_cases": packed}
    made = row("livecodebench", raw)
    assert made["tests"] == [["4 4", "8"]] and made["examples"] == [["1 2\n", "3\n"]]
    assert solved(made, "print(sum(map(int, input().split())))")
    starter = "class Solution:\n    def add(self, a: int, b: List[int]) -> int:\n        "
    calls = [{"input": "1\n[2, 3]", "output": "[1, 2, 3]"}, {"input": "7\n[]", "output": "[7]"}]
    raw = {"question_content": "Prepend.", "starter_code": starter, "public_test_cases": json.dumps(calls[:1])}
    made = row("livecodebench", {**raw, "private_test_cases": json.dumps(calls[1:])})
    assert solved(made, "class Solution:\n    def add(self, a, b):\n        return (a, *b)")
    assert not solved(made, "class Solution:\n    def add(self, a, b):\n        return b")


def test_a_pickle_with_more_than_text_is_refused() -> None:
    packed = base64.b64encode(zlib.compress(pickle.dumps(Path("x")))).decode()
    with pytest.raises(ValueError, match="more than text"):
        row("livecodebench", {"question_content": "", "public_test_cases": "[]", "private_test_cases": packed})


def test_apps_and_codecontests_as_the_hub_has_them() -> None:
    both = {"inputs": ["1\n", "2\n"], "outputs": ["2\n", "4\n"]}
    made = row(
        "apps", {"question": "Double.", "input_output": json.dumps(both), "solutions": '["print(2 * int(input()))"]'}
    )
    assert made["style"] == "stdio" and solved(made, made["golden"])
    both = {"fn_name": "f", "inputs": [[[1, 2]], [[]]], "outputs": [[[2, 4]], [[]]]}
    raw = {"question": "Double.", "input_output": json.dumps(both), "starter_code": "def f(xs):\n\t"}
    assert solved(row("apps", raw), "def f(xs):\n    return tuple(2 * x for x in xs)")
    assert solved(row("apps", raw | {"starter_code": ""}), "def f(xs):\n    return [2 * x for x in xs]")
    tests = {"input": ["1"], "output": ["2"]}
    raw = {"description": "Double.", "public_tests": {"input": [], "output": []}, "private_tests": tests}
    solutions = {"language": [2, 3], "solution": ["int main(){}", "print(2 * int(input()))"]}
    made = row("codecontests", {**raw, "generated_tests": {"input": ["5"], "output": ["10"]}, "solutions": solutions})
    assert len(made["tests"]) == 2 and solved(made, made["golden"])


def test_quixbugs() -> None:
    tests = "assert gcd(17, 0) == 17\nassert gcd(13, 13) == 13\nassert gcd(37, 600) == 1"
    good = "def gcd(a, b):\n    return a if b == 0 else gcd(b, a % b)"
    raw = {"name": "gcd", "docstring": '"""Greatest common divisor."""', "tests": tests, "solution": good}
    made = row("quixbugs", {**raw, "buggy_program": good.replace("gcd(b, a % b)", "gcd(a % b, b)")})
    assert solved(made, good) and not solved(made, made["buggy"])


def test_quixbugs_and_verilog_eval_as_their_repositories_have_them(tmp_path: Path) -> None:
    """There is a file for each part of a problem. Tests in JSON take an argument or a list, and may return
    generators."""
    good = "def ups(n):\n    for i in range(n):\n        yield i + 1"
    texts = {
        "json_testcases/ups.json": "[2, [1, 2]]\n[[3], [1, 2, 3]]\n",
        "python_programs/ups.py": good.replace("i + 1", "i") + '\n\n"""\nCounting\n"""\n',
        "correct_python_programs/ups.py": good + '\n\n"""\nCounting\n"""\n',
        "dataset_spec-to-rtl/Prob001_zero_prompt.txt": "Always 0.",
        "dataset_spec-to-rtl/Prob001_zero_ref.sv": "module RefModule (\n  output zero\n);\n  assign zero=0;\nendmodule",
        "dataset_spec-to-rtl/Prob001_zero_test.sv": "module tb(); endmodule",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert prepare("quixbugs", tmp_path, tmp_path / "q").counts == {"test": 1}
    (made,) = Prepared.open(tmp_path / "q").rows("test")
    assert made["question"] == "Counting" and solved(made, made["golden"]) and not solved(made, made["buggy"])
    assert prepare("verilog_eval", tmp_path, tmp_path / "v", check=False).counts == {"test": 1}
    (made,) = Prepared.open(tmp_path / "v").rows("test")
    assert made["interface"] == "module TopModule (\n  output zero\n);" and "TopModule" in made["golden"]


# -- the real samples -------------------------------------------------------------------------------------------------


def rows(name: str, file: str, count: int) -> list[DataRow]:
    """Some rows of a sample, the same every time."""
    assert DATA is not None
    text = (DATA / file).read_text(encoding="utf-8")
    raws = json.loads(text) if file.endswith(".json") else [json.loads(line) for line in text.split("\n") if line]
    made = [r for raw in raws if (r := validate(lookup_format(name), raw).row()) is not None]
    assert len(made) >= 0.95 * len(raws)
    return random.Random(0).sample(made, min(count, len(made)))


@real
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # escapes in published programs
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("humaneval", "humaneval/HumanEval.jsonl"),
        ("humanevalfix", "humanevalfix/humanevalpack_python.jsonl"),
        ("mbpp", "mbpp/mbpp.jsonl"),
        ("mbpp", "mbpp/sanitized-mbpp.json"),
    ],
)
def test_published_solutions_pass_and_published_bugs_fail(name: str, file: str) -> None:
    for made in rows(name, file, 30):
        assert Problem.of(made).try_(PATIENT, made["golden"]).solved, made
        assert not made.get("buggy") or not solved(made, made["buggy"]), made


@real
@pytest.mark.parametrize(
    ("name", "file", "styles"),
    [
        ("apps", "apps_150/selected150.jsonl", {"calls", "stdio"}),
        ("codecontests", "codecontests/test.jsonl", {"stdio"}),
    ],
)
def test_samples_without_solutions_are_read(name: str, file: str, styles: set[str]) -> None:
    made = rows(name, file, 1000)
    assert {r["style"] for r in made} == styles
    for one in made[:5]:
        assert not solved(one, "print(1)\ndef f(*_): return 1")
        assert one["tests"] and Problem.of(one).text


@real
@pytest.mark.skipif(verilog.shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
def test_verilog_eval() -> None:
    options = {"data": "", "team": "pair", "rounds": 1, "bugs": 2, "isolation": "strongest"}
    for made in rows("verilog_eval", "verilog_eval/verilog_eval_v2.jsonl", 8):
        env = Hardware(Task("t", "hardware", 0, {**options, "row": made}))
        rewards = env.step({role: env.script(role) for role in env.roles})
        assert env.solved and sum(r.value or 0 for r in rewards) == pytest.approx(2.0), made["id"]

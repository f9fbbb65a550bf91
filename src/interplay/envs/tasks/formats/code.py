"""Programming problems: rows of kind `code` (see envs/tasks/problems.py), from APPS, CodeContests, LiveCodeBench,
HumanEval and MBPP, and from HumanEvalFix and QuixBugs, which have bugs to repair.

Tests that a problem statement shows are examples; the others stay hidden. If a data set shows all of its tests, only
the first is shown and the others are hidden, so that a program cannot pass by looking up answers.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import pickle
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import AliasChoices, Field

from interplay.envs.tasks.data import DataRow, Hub, Public, register_format
from interplay.envs.tasks.written_test import HELPER_SETUP


class _Code(Public):
    kind: ClassVar[str] = "code"


def _stdio(
    question: str, tests: Sequence[Sequence[str]], examples: Sequence[Sequence[str]], golden: str = ""
) -> DataRow | None:
    pairs = [[given, wanted] for given, wanted in tests if wanted.strip()]
    if not pairs:
        return None
    shown = [[given, wanted] for given, wanted in examples]
    hidden = [pair for pair in pairs if pair not in shown] or pairs
    return {"question": question, "style": "stdio", "tests": hidden, "examples": shown, "golden": golden}


def _called(starter: str) -> tuple[str, str] | None:
    """The name to define, and how it is called."""
    method = re.search(r"class Solution.*?def (\w+)\(", starter, re.DOTALL)
    if method:
        return "Solution", f"Solution().{method[1]}"
    function = re.search(r"def (\w+)\(", starter)
    return (function[1], function[1]) if function else None


def _value(text: str) -> Any:
    """One argument as MapCoder's files write it: a Python value, or otherwise the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _calls(
    question: str, starter: str, tests: Sequence[tuple[list[Any], Any]], shown: int, golden: str = ""
) -> DataRow | None:
    named = _called(starter)
    if named is None or not tests:
        return None
    entry, call = named
    lines = [f"assert plain({call}(*{args!r})) == {wanted!r}" for args, wanted in tests]
    row = {
        "question": question,
        "style": "calls",
        "entry": entry,
        "starter": starter.strip("\n"),
        "setup": HELPER_SETUP,
    }
    return {**row, "tests": lines[shown:] or lines, "examples": lines[:shown], "golden": golden}


@register_format("apps")
class Apps(_Code):
    """Problems of three levels, to be solved by a program or a function (Hendrycks et al., 2021)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("codeparrot/apps", None, "train.jsonl"),
        "test": ("codeparrot/apps", None, "test.jsonl"),
    }
    alone: ClassVar[str | None] = "test"
    question: str = Field(validation_alias=AliasChoices("question", "description"))
    starter_code: str = ""
    input_output: str | None = None  # JSON, in the files of the hub
    solutions: str | None = None
    test_list: list[dict[str, Any]] | None = None  # in MapCoder's selection
    sample_io: list[dict[str, Any]] = Field([])
    difficulty: str = ""

    def row(self) -> DataRow | None:
        golden, starter = (json.loads(self.solutions) or [""])[0] if self.solutions else "", self.starter_code.strip()
        if self.test_list is not None:
            tests, shown = ([(t["input"], t["output"]) for t in part] for part in (self.test_list, self.sample_io))
        elif self.input_output:
            both = json.loads(self.input_output)
            tests, shown = list(zip(both["inputs"], both["outputs"], strict=True)), []
            starter = starter or (f"def {both['fn_name']}(" if both.get("fn_name") else "")
        else:
            return None
        if starter:
            calls = [(_arguments(given), _one(wanted)) for given, wanted in (*shown, *tests)]
            row = _calls(self.question, starter, calls, len(shown), golden)
        else:
            texts = [[[_text(given), _text(_one(wanted))] for given, wanted in part] for part in (tests, shown)]
            row = _stdio(self.question, texts[0], texts[1], golden)
        return row and {**row, "level": self.difficulty}


def _arguments(given: Any) -> list[Any]:
    """A list, or a text with one argument per line."""
    return [_value(line) for line in given.split("\n")] if isinstance(given, str) else list(given)


def _one(wanted: Any) -> Any:
    return wanted[0] if isinstance(wanted, list) and len(wanted) == 1 else wanted


def _text(said: Any) -> str:
    return "\n".join(map(str, said)) if isinstance(said, list) else str(said)


@register_format("codecontests")
class CodeContests(_Code):
    """Contest problems (Li et al., 2022) with public, private and generated tests.

    A row that was given a `checker` (see envs/tasks/problems.py) keeps it: many contest problems have several right
    outputs, and the data set itself has no checkers.
    """

    licence = "CC BY 4.0"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("deepmind/code_contests", None, "train"),
        "validation": ("deepmind/code_contests", None, "valid"),
        "test": ("deepmind/code_contests", None, "test"),
    }
    alone: ClassVar[str | None] = "test"
    question: str = Field(validation_alias=AliasChoices("description", "problem"))
    tests: list[dict[str, str]] | None = None
    public_tests: dict[str, list[str]] = Field({})
    private_tests: dict[str, list[str]] = Field({})
    generated_tests: dict[str, list[str]] = Field({})
    solutions: dict[str, list[Any]] = Field({})
    checker: str = ""

    def row(self) -> DataRow | None:
        row = self._row()
        return row if row is None or not self.checker else {**row, "checker": self.checker}

    def _row(self) -> DataRow | None:
        if self.tests is not None:
            return _stdio(self.question, [[t["input"], t["output"]] for t in self.tests], [])
        public, private, generated = (
            [[i, o] for i, o in zip(t.get("input", []), t.get("output", []), strict=True)]
            for t in (self.public_tests, self.private_tests, self.generated_tests)
        )
        named = zip(self.solutions.get("language", []), self.solutions.get("solution", []), strict=True)
        golden = next((text for language, text in named if language in (3, "PYTHON3")), "")
        return _stdio(self.question, [*private, *generated, *public], public, golden)


@register_format("livecodebench")
class LiveCodeBench(_Code):
    """Recent contest problems (Jain et al., 2024), standard input or functions."""

    licence = "CC"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("livecodebench/code_generation_lite", None, "test*.jsonl")}
    alone: ClassVar[str | None] = "test"
    question_content: str
    starter_code: str = ""
    public_test_cases: str
    private_test_cases: str = "[]"
    difficulty: str = ""

    def row(self) -> DataRow | None:
        public, private = json.loads(self.public_test_cases), _private(self.private_test_cases)
        if self.starter_code.strip():
            read = [
                ([json.loads(v) for v in t["input"].split("\n")], json.loads(t["output"])) for t in (*public, *private)
            ]
            row = _calls(self.question_content, self.starter_code, read, len(public))
        else:
            pairs = [[[t["input"], t["output"]] for t in part] for part in (private, public)]
            row = _stdio(self.question_content, pairs[0] or pairs[1], pairs[1])
        return row and {**row, "level": self.difficulty}


class _TextOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise ValueError("private_test_cases contains more than text")


def _private(text: str) -> list[dict[str, str]]:
    """JSON, or the form in which the hub hides the tests from crawlers: pickled and compressed text."""
    try:
        return json.loads(text)
    except ValueError:
        packed = zlib.decompress(base64.b64decode(text))
        return json.loads(_TextOnly(io.BytesIO(packed)).load())


class _HumanEval(_Code):
    """A function to complete from its docstring, with `check(candidate)`."""

    alone: ClassVar[str | None] = "test"
    prompt: str
    entry_point: str
    canonical_solution: str
    test: str

    def row(self) -> DataRow:
        setup, tests = _checks(self.test, self.prompt, self.entry_point)
        row = {"question": "Complete the function.", "style": "calls", "entry": self.entry_point}
        golden = self.prompt + self.canonical_solution
        return {**row, "starter": self.prompt, "setup": setup, "tests": tests, "examples": [], "golden": golden}

    @classmethod
    def compared(cls, row: DataRow) -> str:
        return str(row["starter"])


@register_format("humaneval")
class HumanEval(_HumanEval):
    """Functions to complete from their docstrings (Chen et al., 2021)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("openai/openai_humaneval", None, "test")}


@register_format("humanevalfix")
class HumanEvalFix(_HumanEval):
    """HumanEval with a bug in each function (Muennighoff et al., 2023)."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("bigcode/humanevalpack", "python", "test")}
    declaration: str
    buggy_solution: str

    def row(self) -> DataRow:
        return {**super().row(), "buggy": self.declaration + self.buggy_solution}


def _checks(test: str, prompt: str, entry: str) -> tuple[str, list[str]]:
    """The prompt (for functions that tests use) with the code before `check`, and the assertions of `check`."""
    tree = ast.parse(test)
    check = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "check")
    before = [n for n in tree.body if n is not check and not isinstance(n, ast.Expr)]
    setup = prompt + "\n" + "\n".join(ast.unparse(n) for n in before if "METADATA" not in ast.unparse(n)) + "\n"
    given = check.args.args[0].arg
    if given in ("candidate", entry) and all(isinstance(n, ast.Assert) for n in check.body):
        real = [
            n
            for n in check.body
            if isinstance(n, ast.Assert) and any(isinstance(c, ast.Call) for c in ast.walk(n.test))
        ]
        return setup, [ast.unparse(ast.Assert(n.test, None)) for n in real]
    return setup, [f"{ast.unparse(check)}\ncheck({entry})"]


@register_format("mbpp")
class Mbpp(_Code):
    """Short functions from one sentence (Austin et al., 2021), full or sanitized."""

    licence = "CC BY 4.0"
    hub: ClassVar[Mapping[str, Hub]] = {
        "train": ("google-research-datasets/mbpp", "full", "train"),
        "validation": ("google-research-datasets/mbpp", "full", "validation"),
        "test": ("google-research-datasets/mbpp", "full", "test"),
    }
    alone: ClassVar[str | None] = "test"
    task_id: int
    question: str = Field(validation_alias=AliasChoices("text", "prompt"))
    code: str
    test_list: list[str]
    challenge_test_list: list[str] = Field([])
    test_setup_code: str = ""
    test_imports: list[str] = Field([])

    def split(self) -> str | None:
        """As published: 1–10 are for prompts; here they belong to train."""
        return "train" if self.task_id <= 10 or self.task_id > 600 else "test" if self.task_id <= 510 else "validation"

    def row(self) -> DataRow | None:
        golden = self.code.replace("\r\n", "\n").replace("\r", "\n")
        try:
            defined = {n.name for n in ast.parse(golden).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
            called = [n.func.id for n in ast.walk(ast.parse(self.test_list[0])) if isinstance(n, ast.Call)
                      and isinstance(n.func, ast.Name)]  # fmt: skip
        except (SyntaxError, IndexError):
            return None
        entry = next((name for name in called if name in defined), None)
        if entry is None:
            return None
        setup = "\n".join((*self.test_imports, self.test_setup_code.replace("\r\n", "\n"))).strip()
        tests = [t.strip() for t in (*self.test_list, *self.challenge_test_list)]
        row = {"id": f"mbpp-{self.task_id}", "question": self.question, "style": "calls", "entry": entry}
        return {**row, "setup": setup, "golden": golden, "tests": tests[1:] or tests, "examples": tests[:1]}


@register_format("quixbugs")
class QuixBugs(_Code):
    """Classic algorithms with a bug on one line (Lin et al., 2017).

    From the hub, or a copy of its repository; the programs with tests in JSON are read."""

    licence = "MIT"
    hub: ClassVar[Mapping[str, Hub]] = {"test": ("Muennighoff/quixbugs", None, "train")}
    alone: ClassVar[str | None] = "test"
    name: str
    buggy_program: str
    docstring: str
    solution: str
    tests: str

    @classmethod
    def unpacked(cls, folder: Path) -> Iterator[Mapping[str, Any]] | None:
        cases = sorted((folder / "json_testcases").glob("*.json"))
        return (_quix(folder, file) for file in cases) if cases else None

    def row(self) -> DataRow | None:
        body = ast.parse(self.tests).body
        asserts = [ast.unparse(n) for n in body if isinstance(n, ast.Assert)]
        if not asserts:
            return None
        setup = "\n".join(ast.unparse(n) for n in body if not isinstance(n, ast.Assert))
        known = {"golden": self.solution, "buggy": self.buggy_program}
        row = {"question": self.docstring.strip("\"' \n"), "style": "calls", "entry": self.name, "setup": setup}
        return {**row, **known, "tests": asserts[1:] or asserts, "examples": asserts[:1]}


def _quix(folder: Path, cases: Path) -> Mapping[str, Any]:
    """One program of the repository. Each test is a line of JSON, and the description follows the code."""
    name = cases.stem
    buggy, solution = (
        (folder / kind / f"{name}.py").read_text(encoding="utf-8")
        for kind in ("python_programs", "correct_python_programs")
    )
    read = [json.loads(line) for line in cases.read_text(encoding="utf-8").split("\n") if line.strip()]
    calls = [(given if isinstance(given, list) else [given], wanted) for given, wanted in read]
    asserts = [f"assert plain({name}(*{given!r})) == {wanted!r}" for given, wanted in calls]
    code, mark, said = buggy.partition('"""')
    row = {"name": name, "buggy_program": code.strip() if mark else buggy, "docstring": said or name}
    return {**row, "solution": solution.partition('"""')[0].strip(), "tests": HELPER_SETUP + "\n".join(asserts)}

"""Code: a coder writes a program and a tester writes tests for it. Both are judged by hidden tests and programs.

Roles         coder and tester (`team = "pair"`), or the coder alone (`single`).
Turns         in every round coder and tester reply at once. The program is run on the tester's tests. If it passes all
              of them, the work is done. Otherwise both see the program, the tests and which of them failed, and reply
              again, for at most `rounds` rounds. The last reply of each role counts. Alone, the coder replies once.
Observation   the problem with its examples and how to reply; from the second round on also what happened.
Actions       coder: a Python program, in a fenced block or alone. Tester: `tests` tests, one per line: an assert with
              plain values for a function, a JSON object of input and output for a program that reads and prints.
Rewards       coder, as published: `build` (process) 0.1 for a program that compiles and defines what was asked, `run`
              (process) 0.1 if it gives an answer to every hidden test, `pass` (agent) 0.8 × the share of hidden tests
              passed. A program that ignores its input earns nothing. Tester, as published: `valid` (process) 0.2 × the
              share of the requested tests that are in the form, new and different; `golden` (agent) 0.8 × the share on
              which the golden program agrees × the share of the `bugs` planted in it that these tests catch. Tests that
              catch no bug earn nothing. Without a golden program nothing is scored (None). `solved` (team, at the end):
              1 if all hidden tests pass.
Data          prepared rows of kind code (apps, codecontests, livecodebench, humaneval, mbpp), or generated problems
              over lists of numbers. If several outputs are right, a row may have its own `checker`.
Checker       execution/programs.py in the sandbox; planted bugs from rewards/mutants.py.
Version       1
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.envs.env import register
from interplay.envs.tasks import problems
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.envs.tasks.problems import Problem, Test, code_in
from interplay.errors import ConfigError
from interplay.execution.programs import Bench, Trial, nothing
from interplay.execution.sandbox import Isolation
from interplay.types import Message, Observation, Rewards, Role, Task

BUILD, RUN, PASS = 0.1, 0.1, 0.8
VALID, GOLDEN = 0.2, 0.8
SHOWN = 3_000  # characters of a program that the other role sees
_CODER = "Write a Python program that solves the problem. Reply with the program alone, in a ```python block."
_TESTER = (
    "Write {count} tests for a program that solves the problem, one on a line: {form}. Reply with the tests alone."
)


class ProgramOptions(DataOptions):
    """Options of all tasks whose programs are run."""

    style: Literal["any", "calls", "stdio"] = Field("any", description="style of generated problems")
    isolation: Isolation = Field("strongest", description="sandbox level; refused if the machine does not offer it")
    seconds: float = Field(2.0, gt=0, le=120, description="processor time of a program on one test")
    memory_mb: float = Field(256.0, ge=32, description="memory of a program")


class Options(ProgramOptions):
    team: Literal["pair", "single"] = Field("pair", description="coder and tester, or the coder alone")
    rounds: int = Field(2, ge=1, le=8, description="largest number of rounds")
    tests: int = Field(4, ge=1, le=16, description="number of tests that the tester must write")
    bugs: int = Field(4, ge=1, le=16, description="number of bugs planted in the golden program to judge the tests")


def bench_of(options: Mapping[str, Any]) -> Bench:
    return Bench(options["isolation"], options["seconds"], options["memory_mb"])


def coder_rewards(role: Role, trial: Trial) -> Rewards:
    """What a program earns, whoever wrote it."""
    return (
        Rewards.process("build", {role: BUILD * trial.built})
        + Rewards.process("run", {role: RUN * trial.ran})
        + Rewards.agent("pass", {role: PASS * trial.share})
    )


@register("code")
class Code(DataEnv):
    Options = Options
    kind: ClassVar[str] = "code"
    success: ClassVar[str] = "solved"
    slow: ClassVar[bool] = True
    reward_names: ClassVar[tuple[str, ...]] = ("build", "run", "pass", "valid", "golden", "solved")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("coder", "tester") if task.data["team"] == "pair" else ("coder",)
        self.problem = Problem.of(self.row)
        self.bench = bench_of(task.data)
        self.round = 0
        self.over = False
        self.program = ""
        self.tests: tuple[Test, ...] = ()
        self.failed: tuple[int, ...] = ()  # the tester's tests that failed in the last round
        self.solved = False

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        return problems.draw(rng, split, options["style"])

    def observe(self) -> dict[Role, Observation]:
        return {} if self.over else {role: self._observed(role) for role in self.roles}

    def _observed(self, role: Role) -> Observation:
        rule = _CODER if role == "coder" else _TESTER.format(count=self.task.data["tests"], form=self.problem.form)
        lines = [self.problem.text]
        if self.round:
            lines += ["", f"The program so far:\n{self.program[:SHOWN] or '(none)'}", "", "The tests so far:"]
            marks = ["failed" if n in self.failed else "passed" for n in range(len(self.tests))]
            lines += [f"{shown(test)}: {mark}" for test, mark in zip(self.tests, marks, strict=True)] or ["(none)"]
            lines.append("Program or tests may be wrong. Reply with yours again, mended where it is needed.")
        return Observation((Message("system", rule), Message("user", "\n".join(lines))), True, (), role)

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.round += 1
        self.program = code_in(actions["coder"])
        self.tests = self._read(actions.get("tester", ""))
        trial = self.problem.try_(self.bench, self.program, self.tests) if self.tests else nothing(0, "")
        self.failed = tuple(n for n, done in enumerate(trial.passed) if not done)
        done = bool(self.tests) and not self.failed
        self.over = done or len(self.roles) == 1 or self.round >= self.task.data["rounds"]
        if not self.over:
            return Rewards()
        hidden = self.problem.try_(self.bench, self.program)
        self.solved = hidden.solved
        rewards = coder_rewards("coder", hidden)
        return rewards + self._tester_rewards() if "tester" in self.roles else rewards

    def _read(self, text: str) -> tuple[Test, ...]:
        """The tests in a reply that are in the form, without duplicates, at most as many as were asked for."""
        lines = code_in(text[: 1000 * self.task.data["tests"]]).split("\n")
        found = dict.fromkeys(test for line in lines if (test := self.problem.read_test(line)) is not None)
        return tuple(found)[: self.task.data["tests"]]

    def _tester_rewards(self) -> Rewards:
        valid: float | None = None
        golden: float | None = None
        if self.problem.golden:
            agreed = self.problem.try_(self.bench, self.problem.golden, self.tests).passed if self.tests else ()
            right = [test for test, done in zip(self.tests, agreed, strict=True) if done]
            bugs = self.problem.bugs(self.bench, self.task.data["bugs"])
            caught = [bug for bug in bugs if right and not self.problem.try_(self.bench, bug, right).solved]
            share = len(caught) / len(bugs) if bugs else float(bool(right))
            asked: int = self.task.data["tests"]
            valid = VALID * len(self.tests) / asked if share else 0.0
            golden = GOLDEN * len(right) / asked * share
        return Rewards.process("valid", {"tester": valid}) + Rewards.agent("golden", {"tester": golden})

    def outcome(self) -> Rewards:
        return Rewards.team("solved", float(self.solved))

    @property
    def answered(self) -> bool:
        return bool(self.program.strip())

    def state(self) -> str:
        lines = [self.problem.text, f"round {self.round} of {self.task.data['rounds']}", self.program[:SHOWN]]
        lines += [f"{shown(test)}{': failed' if n in self.failed else ''}" for n, test in enumerate(self.tests)]
        if self.over:
            lines.append("solved" if self.solved else "not solved")
        return "\n".join(lines)

    def script(self, role: Role) -> str:
        if not self.problem.golden:
            raise ConfigError(
                "bot 'expert' needs rows with a golden program; expected humaneval, mbpp or generated problems."
            )
        if role == "coder":
            return f"```python\n{self.problem.golden}\n```"
        return "\n".join(self.problem.write_tests(self.task.data["tests"]))


def shown(test: Test) -> str:
    return test if isinstance(test, str) else f"input {test[0]!r}, output {test[1]!r}"

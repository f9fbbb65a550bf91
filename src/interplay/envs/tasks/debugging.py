"""Debugging: a breaker plants a bug in a right program, and a fixer repairs it without having seen the original.

Roles         breaker and fixer (`team = "pair"`), or the fixer alone with the bug of the row (`single`).
Turns         the breaker replies once with the broken program. Then the fixer has `rounds` attempts; after a failed
              attempt it sees the first error in a hidden test. A bug that does not count ends the episode.
Observation   breaker: the problem, the program, how to reply. Fixer: the problem and the broken program.
Actions       a whole Python program, in a fenced block or alone.
Rewards       breaker: `build` (process) 0.1 for a program that compiles and defines what was asked, `run` (process) 0.1
              if it answers every hidden test, `broken` (agent) 0.8 if it fails some of them, differs from the original
              in at most `lines` lines and keeps most of its words (a different program is not a bug). If it meets none
              of these conditions, or is the unchanged program, it earns nothing. Fixer, for its last attempt: `build`
              and `run` 0.1 each and `pass` (agent) 0.8 × the share of hidden tests that failed before and pass now; all
              of these are 0 unless more tests pass than before. `stumped` (agent, breaker, only with `adversarial`): 1
              for a bug that was not repaired. `solved` (team, at the end): 1 if a bug that counts was planted and all
              tests pass.
Data          prepared rows of kind code with a golden program (humaneval, mbpp, humanevalfix, quixbugs), or generated
              problems. For the fixer alone, humanevalfix and quixbugs have bugs.
Checker       execution/programs.py in the sandbox; if a row has no bug, one is planted by rewards/mutants.py.
Version       1
"""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.envs.env import register
from interplay.envs.tasks import problems
from interplay.envs.tasks.code import BUILD, PASS, RUN, ProgramOptions, bench_of
from interplay.envs.tasks.data import DataEnv, DataRow
from interplay.envs.tasks.problems import Problem, code_in
from interplay.errors import ConfigError
from interplay.types import Message, Observation, Rewards, Role, Task

KEPT = 0.75  # share of the original's words and signs that must remain, in their order
_BREAKER = (
    "Plant one small bug in the program, in at most {lines} lines: it must still run, and give a wrong answer for some "
    "input. Reply with the whole program, in a ```python block."
)
_FIXER = "The program has a bug. Reply with the whole program, mended, in a ```python block."


class Options(ProgramOptions):
    team: Literal["pair", "single"] = Field("pair", description="breaker and fixer, or the fixer with the row's bug")
    rounds: int = Field(1, ge=1, le=8, description="attempts of the fixer")
    lines: int = Field(2, ge=1, le=50, description="number of lines that the breaker may change")
    adversarial: bool = Field(False, description="reward the breaker also if the fixer fails")


@register("debugging")
class Debugging(DataEnv):
    Options = Options
    kind: ClassVar[str] = "code"
    success: ClassVar[str] = "solved"
    slow: ClassVar[bool] = True
    reward_names: ClassVar[tuple[str, ...]] = ("build", "run", "broken", "pass", "stumped", "solved")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("breaker", "fixer") if task.data["team"] == "pair" else ("fixer",)
        self.problem = Problem.of(self.row)
        self.bench = bench_of(task.data)
        self.broken: str | None = None if len(self.roles) == 2 else self._given()
        self.passing = 0  # hidden tests that the broken program passes
        self.measured = False  # whether `passing` is known
        self.attempts = 0
        self.program = ""
        self.trouble = ""
        self.over = self.solved = False

    def _given(self) -> str:
        if not self.problem.buggy:
            raise ConfigError(
                "env.team is 'single', but a row has no bug; expected humanevalfix or quixbugs in env.data, or "
                "env.team = 'pair'."
            )
        return self.problem.buggy

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        return problems.draw(rng, split, options["style"])

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        if self.broken is None:
            rule = _BREAKER.format(lines=self.task.data["lines"])
            text = f"{self.problem.text}\n\nThe program:\n{self._golden()}"
            return {"breaker": Observation((Message("system", rule), Message("user", text)), True, (), "break")}
        text = f"{self.problem.text}\n\nThe program:\n{self.broken}"
        if self.attempts:
            text += f"\n\nYour last attempt:\n{self.program}\n\nIt failed: {self.trouble}"
        return {"fixer": Observation((Message("system", _FIXER), Message("user", text)), True, (), "fix")}

    def _golden(self) -> str:
        if not self.problem.golden:
            raise ConfigError(
                "env.team is 'pair', but a row has no program to break; expected rows with a golden program, such as "
                "humaneval or mbpp, in env.data."
            )
        return self.problem.golden

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        return self._break(code_in(text)) if role == "breaker" else self._fix(code_in(text))

    def _break(self, program: str) -> Rewards:
        trial = self.problem.try_(self.bench, program) if _changed(self._golden(), program) else None
        small = trial is not None and self._small(program)
        counts = trial is not None and small and trial.built and trial.ran and not trial.solved
        if trial is None or not counts:
            self.over = True
            return (
                Rewards.process("build", {"breaker": 0.0})
                + Rewards.process("run", {"breaker": 0.0})
                + Rewards.agent("broken", {"breaker": 0.0})
            )
        self.broken, self.passing, self.measured = program, sum(trial.passed), True
        return (
            Rewards.process("build", {"breaker": BUILD})
            + Rewards.process("run", {"breaker": RUN})
            + Rewards.agent("broken", {"breaker": 1.0 - BUILD - RUN})
        )

    def _small(self, program: str) -> bool:
        """Whether the program is the original with a bug, and not another program."""
        golden = self._golden()
        return 0 < _changed(golden, program) <= self.task.data["lines"] and _kept(golden, program) >= KEPT

    def _fix(self, program: str) -> Rewards:
        assert self.broken is not None
        if not self.measured:
            self.passing, self.measured = sum(self.problem.try_(self.bench, self.broken).passed), True
        trial = self.problem.try_(self.bench, program)
        self.attempts += 1
        self.program, self.trouble, self.solved = program, trial.trouble, trial.solved
        self.over = self.solved or self.attempts >= self.task.data["rounds"]
        if not self.over:
            return Rewards()
        gained, missing = sum(trial.passed) - self.passing, len(trial.passed) - self.passing
        share = max(0.0, gained / missing) if missing else 0.0
        rewards = (
            Rewards.process("build", {"fixer": BUILD * (trial.built and gained > 0)})
            + Rewards.process("run", {"fixer": RUN * (trial.ran and gained > 0)})
            + Rewards.agent("pass", {"fixer": PASS * share})
        )
        if self.task.data["adversarial"] and "breaker" in self.roles:
            rewards += Rewards.agent("stumped", {"breaker": float(not self.solved)})
        return rewards

    def outcome(self) -> Rewards:
        return Rewards.team("solved", float(self.solved))

    def state(self) -> str:
        lines = [
            self.problem.text,
            f"broken:\n{self.broken or '(not yet)'}",
            f"attempts: {self.attempts}",
            self.program,
        ]
        if self.over:
            lines.append("solved" if self.solved else "not solved")
        return "\n".join(lines)

    def script(self, role: Role) -> str:
        if role == "fixer":
            return f"```python\n{self._golden()}\n```"
        if self._small(self.problem.buggy):
            return f"```python\n{self.problem.buggy}\n```"
        for bug in self.problem.bugs(self.bench, 8):
            if self._small(bug):
                return f"```python\n{bug}\n```"
        raise ConfigError("bot 'expert' knows no small bug for a row; expected rows with a bug, or a larger env.lines.")


def _changed(original: str, program: str) -> int:
    """The number of lines of `original` that are changed, missing or new in `program`. Layout and comments do not
    count."""
    before, after = (problems.normal(text) for text in (original, program))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")


def _kept(original: str, program: str) -> float:
    """The share of the original's words and signs that `program` contains in the same order."""
    before, after = (re.findall(r"\w+|[^\w\s]", "\n".join(problems.normal(text))) for text in (original, program))
    blocks = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, len(before))

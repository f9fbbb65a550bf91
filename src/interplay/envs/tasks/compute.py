"""Computes the reply of a tool role: an expression with the calculator, or a Python program in the sandbox.

The result is a text that is compared like an answer: the value, or the last line that the program printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from interplay.envs.tasks.problems import code_in
from interplay.execution.sandbox import Isolation, Job, Limits, shared
from interplay.rewards.calculator import CalculatorError, calculate, shown
from interplay.rewards.reply import spoken
from interplay.rewards.verify import LONGEST_ANSWER

ToolKind = Literal["calculator", "python"]
LONGEST = 10_000  # the largest number of characters in a program
LIMITS = Limits(seconds=20.0, cpu_seconds=2.0, memory_mb=256.0, files_mb=1.0, output_kb=64.0)


@dataclass(frozen=True)
class Computed:
    """`result` is None if there is none; `trouble` then says why. `built`: it was an expression or a program."""

    built: bool
    result: str | None
    trouble: str = ""


def compute(tool: ToolKind, reply: str, isolation: Isolation = "strongest") -> Computed:
    return _expression(spoken(reply)) if tool == "calculator" else _program(code_in(reply), isolation)


def _expression(text: str) -> Computed:
    try:
        return Computed(True, shown(calculate(text)))
    except CalculatorError as error:
        return Computed(error.built, None, str(error))


@lru_cache(maxsize=8192)
def _program(source: str, isolation: Isolation) -> Computed:
    if not 0 < len(source.strip()) <= LONGEST:
        return Computed(False, None, "there is no program" if not source.strip() else "the program is too long")
    ran = shared(isolation).run(Job(source, limits=LIMITS))
    said = ran.stderr.strip().rpartition("\n")[2][:200]
    if not ran.ok:
        return Computed("SyntaxError" not in said, None, said or ran.status)
    printed = ran.stdout.strip().rpartition("\n")[2].strip()
    if not 0 < len(printed) <= LONGEST_ANSWER:
        return Computed(True, None, "it printed nothing" if not printed else "it printed too much")
    return Computed(True, printed)

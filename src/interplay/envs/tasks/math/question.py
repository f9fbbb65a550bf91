"""Code that all math teams share: the question, how answers are parsed and compared, solved examples, tools."""

from __future__ import annotations

import importlib
import random
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.envs import tools
from interplay.envs.splits import split_of_task
from interplay.envs.tasks import word_sums
from interplay.envs.tasks.compute import ToolKind
from interplay.envs.tasks.data import DataEnv, DataOptions, DataRow
from interplay.envs.tasks.media import loaded
from interplay.errors import ConfigError
from interplay.execution.sandbox import Isolation
from interplay.rewards import algebra, short_text, verify
from interplay.rewards.quantity import number
from interplay.types import MediaKind, Message, Observation, Role, Task

_ANSWER: dict[str, str] = {
    "boxed": "Solve the problem step by step, then put the final answer, and nothing else, into \\boxed{}.",
    "hashes": "Solve the problem step by step, then put the final answer, and nothing else, on a line after ####.",
}
_GIVEN: dict[str, str] = {"boxed": "\\boxed{%s}", "hashes": "#### %s"}


class Options(DataOptions):
    team: Literal["pair", "relay", "single", "debate"] = Field("pair", description="who works together, and how")
    agents: int = Field(3, ge=2, le=16, description="debate: number of agents")
    rounds: int = Field(2, ge=1, le=10, description="pair: the largest number of rounds; debate: the number of rounds")
    tool: ToolKind = Field("calculator", description="what computes the tool role's reply")
    isolation: Isolation = Field("strongest", description="sandbox level for tool = python")
    form: Literal["boxed", "hashes"] = Field(
        "boxed", description="how an answer is asked for: \\boxed{} or, easier for small models, after ####"
    )
    words: int = Field(80, ge=10, le=1000, description="relay: the largest number of characters of the reasoner")
    examples: int = Field(0, ge=0, le=8, description="number of solved word problems that are shown first")
    tools: list[Literal["calculator", "python"]] = Field(
        [], description="tools that reasoner and agents may call in a turn"
    )
    min_steps: int = Field(1, ge=1, le=8, description="smallest number of operations in a generated word problem")
    max_steps: int = Field(3, ge=1, le=8, description="largest number of operations in a generated word problem")
    largest: int = Field(50, ge=5, le=10_000, description="largest number in a generated word problem")

    @model_validator(mode="after")
    def _steps_are_a_range(self) -> Options:
        if self.max_steps < self.min_steps:
            raise ConfigError(f"env.max_steps is {self.max_steps}; expected at least env.min_steps.")
        if self.team == "relay" and self.tool != "calculator":
            raise ConfigError(f"env.tool is '{self.tool}' in a relay; expected 'calculator', or env.team = 'pair'.")
        return self


class MathQuestion(DataEnv):
    """A subclass defines who sees what (`seen`), and what a solved example looks like for them (`example`)."""

    Options = Options
    kind: ClassVar[str] = "math"
    success: ClassVar[str] = "correct"
    slow: ClassVar[bool] = True  # formulas are compared and programs run in other processes
    reward_names: ClassVar[tuple[str, ...]] = ("format", "match", "build", "run", "correct")

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> DataRow:
        steps = rng.randint(options["min_steps"], options["max_steps"])
        return word_sums.draw(rng, split, steps, options["largest"])

    @classmethod
    def make_task(cls, name: str, split: str, index: int, seed: int, options: Mapping[str, Any]) -> Task:
        algebra.require()  # so a run ends before its first episode, and not when the first formula is compared
        return super().make_task(name, split, index, seed, options)

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {"level": float(level)} if (level := self.row.get("level", "")).isdecimal() else {}

    # -- defined by a subclass ------------------------------------------------------------------------------------

    @abstractmethod
    def seen(self) -> dict[Role, Observation]:
        """What `observe` returns, without examples and tools: a rule and a question for each role."""

    def example(self, row: DataRow, phase: str) -> tuple[str, str]:
        """A solved problem as a question and its reply."""
        return row["question"], f"{row['expression']} = {row['answer']}\n{self.given(row['answer'])}"

    # -- questions and answers ------------------------------------------------------------------------------------

    @property
    def rule(self) -> str:
        """The instruction that says how to answer."""
        return _ANSWER[self.task.data["form"]]

    def ask(self) -> str:
        return str(self.row["question"])

    def read(self, reply: str) -> str | None:
        return verify.final(reply)

    def right(self, answer: str) -> bool:
        gold: str = self.row["answer"]
        if compare := self.row.get("compare"):
            return short_text.exact_match(answer, [gold]) if compare == "text" else _own(compare)(gold, answer)
        if within := self.row.get("tolerance"):
            ours, theirs = number(gold), number(answer)
            if ours is not None and theirs is not None:
                return abs(ours - theirs) <= Fraction(within)
        return verify.equal(gold, answer)

    def alike(self, answer: str, other: str) -> bool:
        if self.row.get("compare"):
            return short_text.normal(answer) == short_text.normal(other)
        return verify.equal(answer, other)

    def gold(self) -> str:
        return self.given(self.row["answer"])

    def given(self, answer: str) -> str:
        """An answer in the required form."""
        return _GIVEN[self.task.data["form"]] % answer

    # -- prompts --------------------------------------------------------------------------------------------------

    def observe(self) -> dict[Role, Observation]:
        named = self.task.data["tools"]
        seen = {role: self._with_media(role, self._with_examples(o)) for role, o in self.seen().items()}
        return {r: replace(o, tools=tools.named(named)) if named and r != "tool" else o for r, o in seen.items()}

    def _with_media(self, role: Role, observation: Observation) -> Observation:
        """With the row's pictures and sounds in the question. The tool role of a relay is shown the words alone."""
        names = self.row.get("media")
        if not names or (role == "tool" and self.task.data["team"] == "relay"):
            return observation
        source = self.source(self.task.data, split_of_task(self.task.seed))
        assert source is not None  # generated rows have no media
        *before, question = observation.messages
        return replace(observation, messages=(*before, replace(question, media=loaded(source, names))))

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        source = cls.source(options, "train") if options.get("data") else None
        return frozenset() if source is None else frozenset(source.manifest.get("media", ()))

    def _with_examples(self, observation: Observation) -> Observation:
        """The observation with solved problems between the rule and the question."""
        count: int = self.task.data["examples"]
        if not count:
            return observation
        rule, question = observation.messages
        shots: list[Message] = []
        for row in _examples(count, self.task.data["largest"]):
            asked, reply = self.example(row, observation.phase)
            shots += [Message("user", asked), Message("assistant", reply)]
        return Observation((rule, *shots, question), True, (), observation.phase)

    # -- for scripted players -------------------------------------------------------------------------------------

    def script_calls(self, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The row's expression, computed."""
        named, expression = self.task.data["tools"], self.row.get("expression")
        if role == "tool" or not named or not expression:
            return ()
        if "calculator" in named:
            return (("calculator", {"expression": expression}),)
        return (("python", {"code": f"print({expression})"}),)


@lru_cache(maxsize=16)
def _own(name: str) -> Callable[[str, str], bool]:
    """A function outside Interplay that compares the right answer with the given one."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the rows of env.data are compared by '{name}', which cannot be imported: {error}; expected "
            "package.module:function on the Python path."
        ) from None
    return lambda gold, answer: bool(found(gold, answer))


@lru_cache(maxsize=16)
def _examples(count: int, largest: int) -> tuple[DataRow, ...]:
    """Training problems with one, two, three, one, … steps."""
    rng = random.Random(0)
    return tuple(word_sums.draw(rng, "train", 1 + n % 3, largest) for n in range(count))

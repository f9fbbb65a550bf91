"""Math: a reasoner and a tool role, one agent alone, or a debate; answers are checked by what they mean.

Teams         `pair`: in every round the reasoner answers, then the tool role, who has read that, writes an expression
              and sees to it that it is computed; it ends when the two agree, or after `rounds`. `relay`: the reasoner
              says in a few words what to compute, without signs; the tool role, who is shown nothing else, writes
              the expression, and its value is the answer. `single`: the reasoner alone. `debate`: `agents` answer
              at once over `rounds`, each seeing the others' last replies, and a majority vote decides (MAPoRL).
Roles         reasoner and tool; reasoner; or agent1, agent2, …
Observation   the question and what was said before, the whole prompt each time; with `examples`, solved ones first.
Actions       free text. Reasoner and agents put their answer into \\boxed{} or, with `form = "hashes"`, after ####;
              either is read, and "the answer is" too; several that differ are no answer. Tool: an expression of
              numbers, + - * / // % ** and brackets, with something to compute in it; with `tool = "python"` a program
              that prints the answer last, run in the sandbox. In a relay the reasoner may use words, digits and
              commas, at most `words` characters of them, and a reply that cannot be passed on ends the episode.
Tools         with `tools`, reasoner and agents may call a calculator or Python inside a turn.
Rewards       reasoner and agents: `format` (process) 0.2 for one answer in the form, `match` (agent) 0.8 for a right
              one; in a relay `match` is for the value computed, `format` for words with two numbers. Tool: `build`
              (process) 0.1 for an expression or program, `run` (process) 0.1 where it comes to something, `match`
              (agent) 0.8 for the right value. In a pair a reply earns what it changes, so that all rounds add up
              to the last reply's worth: prolonging pays nothing. `correct` (team, at the end): 1 for a right final
              answer, the pair's being its reasoner's.
Data          prepared rows of kind math (gsm8k, math, math500, aime, amc, olympiadbench), or word problems of
              `min_steps` to `max_steps` operations with numbers up to `largest`, made on the spot.
Checker       rewards/verify.py: numbers exactly, formulas by math-verify within limits; what the tool role wrote
              is computed by rewards/calculator.py or run by rewards/sandbox.py.
Version       1
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from interplay.envs import tools
from interplay.envs.env import register
from interplay.envs.tasks import word_sums
from interplay.envs.tasks.compute import Computed, Tool, compute
from interplay.envs.tasks.data import DataOptions, Row
from interplay.envs.tasks.debate import FORMAT, MATCH, Debate, quoted
from interplay.errors import ConfigError
from interplay.execution.sandbox import Isolation
from interplay.rewards import verify
from interplay.rewards.calculator import shown
from interplay.types import Message, Observation, Rewards, Role, Task

BUILD, RUN = 0.1, 0.1  # of the published coder, whose pass is MATCH
_WORDS = re.compile(r"[\w\s,.']+")
_NUMBERS = re.compile(r"\d+")

_ANSWER: dict[str, str] = {
    "boxed": "Solve the problem step by step, then put the final answer, and nothing else, into \\boxed{}.",
    "hashes": "Solve the problem step by step, then put the final answer, and nothing else, on a line after ####.",
}
_GIVEN: dict[str, str] = {"boxed": "\\boxed{%s}", "hashes": "#### %s"}
_TOOL: dict[str, str] = {
    "calculator": "Write one expression that computes the answer to the problem, with numbers, + - * / // % ** and "
    "brackets. Reply with the expression alone.",
    "python": "Write a Python program that computes the answer to the problem and prints it. Reply with the program "
    "alone, in a ```python block.",
}
_SPEAK = (
    "Say what must be computed to answer the problem, in words such as plus, minus, times and divided by, from left to "
    "right. Do not use signs and do not compute."
)
_WRITE = "Write what is said as one expression, computed from left to right, with brackets where needed."


class Options(DataOptions):
    team: Literal["pair", "relay", "single", "debate"] = Field("pair", description="who works together, and how")
    agents: int = Field(3, ge=2, le=16, description="debate: how many")
    rounds: int = Field(2, ge=1, le=10, description="pair: at most; debate: exactly")
    tool: Tool = Field("calculator", description="what computes the tool role's reply")
    isolation: Isolation = Field("strongest", description="python: walls of the sandbox")
    form: Literal["boxed", "hashes"] = Field(
        "boxed", description="how an answer is asked for: \\boxed{} or, easier for small models, after ####"
    )
    words: int = Field(80, ge=10, le=1000, description="relay: characters that the reasoner may say")
    examples: int = Field(0, ge=0, le=8, description="solved word problems shown first")
    tools: list[Literal["calculator", "python"]] = Field(
        [], description="reasoner, agents: what they may call in a turn"
    )
    min_steps: int = Field(1, ge=1, le=8, description="operations of a word problem made on the spot, at least")
    max_steps: int = Field(3, ge=1, le=8, description="the same, at most")
    largest: int = Field(50, ge=5, le=10_000, description="number in such a problem")

    @model_validator(mode="after")
    def _steps_are_a_range(self) -> Options:
        if self.max_steps < self.min_steps:
            raise ConfigError(f"env.max_steps is {self.max_steps}; expected at least env.min_steps.")
        if self.team == "relay" and self.tool != "calculator":
            raise ConfigError(f"env.tool is '{self.tool}' in a relay; expected 'calculator', or env.team = 'pair'.")
        return self


@register("math")
class Math(Debate):
    Options = Options
    kind: ClassVar[str] = "math"
    slow: ClassVar[bool] = True  # formulas and programs are compared and run elsewhere
    alone: ClassVar[Role] = "reasoner"
    reward_names: ClassVar[tuple[str, ...]] = ("format", "match", "build", "run", "correct")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.team: str = task.data["team"]
        if self.team in ("pair", "relay"):
            self.roles = ("reasoner", "tool")
        self.said: str | None = None  # by the reasoner, where the tool role is to act
        self.answer: str | None = None  # the reasoner's, in a pair
        self.written: str = ""  # by the tool role
        self.computed = Computed(False, None)  # what came of it
        self.turn = 0  # whole rounds
        self.over = False
        self.worth: tuple[tuple[str, float], ...] = ()  # what the last reply of each role earned, by reward

    @classmethod
    def generate(cls, rng: random.Random, split: str, options: Mapping[str, Any]) -> Row:
        steps = rng.randint(options["min_steps"], options["max_steps"])
        return word_sums.draw(rng, split, steps, options["largest"])

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {"level": float(level)} if (level := self.row.get("level", "")).isdecimal() else {}

    # -- one agent, or a debate -----------------------------------------------------------------------------------

    @property
    def agents(self) -> int:
        return int(self.task.data["agents"]) if self.task.data["team"] == "debate" else 1

    @property
    def rounds(self) -> int:
        return 1 if self.task.data["team"] in ("single", "relay") else int(self.task.data["rounds"])

    @property
    def rule(self) -> str:
        return _ANSWER[self.task.data["form"]]

    def ask(self) -> str:
        return str(self.row["question"])

    def read(self, reply: str) -> str | None:
        return verify.final(reply)

    def right(self, answer: str) -> bool:
        gold: str = self.row["answer"]
        if within := self.row.get("tolerance"):
            ours, theirs = verify.number(gold), verify.number(answer)
            if ours is not None and theirs is not None:
                return abs(ours - theirs) <= Fraction(within)
        return verify.equal(gold, answer)

    def alike(self, answer: str, other: str) -> bool:
        return verify.equal(answer, other)

    def gold(self) -> str:
        return self._given(self.row["answer"])

    def _given(self, answer: str) -> str:
        return _GIVEN[self.task.data["form"]] % answer

    # -- reasoner and tool ----------------------------------------------------------------------------------------

    def observe(self) -> dict[Role, Observation]:
        named = self.task.data["tools"]
        seen = self._seen()
        return {r: replace(o, tools=tools.named(named)) if named and r != "tool" else o for r, o in seen.items()}

    def _seen(self) -> dict[Role, Observation]:
        if self.team not in ("pair", "relay"):
            return {r: self._shown(o) for r, o in super().observe().items()}
        if self.over:
            return {}
        if self.said is None:
            return {"reasoner": self._shown(Observation(self._for_reasoner(), True, (), "reason"))}
        return {"tool": self._shown(Observation(self._for_tool(), True, (), "compute"))}

    def _for_reasoner(self) -> tuple[Message, ...]:
        if self.team == "relay":
            return Message("system", _SPEAK), Message("user", self.ask())
        lines = [self.ask()]
        if self.turn:
            result = self.computed.result
            gave = f"refused: {self.computed.trouble}" if result is None else f"which gives {quoted(result)}"
            lines.append(f"You answered {self.answer or 'nothing'} before.")
            lines.append(f"The tool role wrote {quoted(self.written)}, {gave}. Weigh both, then answer again.")
        return Message("system", self.rule), Message("user", "\n".join(lines))

    def _for_tool(self) -> tuple[Message, ...]:
        assert self.said is not None
        if self.team == "relay":
            return Message("system", _WRITE), Message("user", self.said)
        told = f"{self.ask()}\nThe reasoner says: {quoted(self.said)}"
        return Message("system", _TOOL[self.task.data["tool"]]), Message("user", told)

    def _shown(self, observation: Observation) -> Observation:
        """With solved problems between the rule and the question."""
        count: int = self.task.data["examples"]
        if not count:
            return observation
        rule, question = observation.messages
        shots: list[Message] = []
        for row in _examples(count, self.task.data["largest"]):
            asked, reply = row["question"], f"{row['expression']} = {row['answer']}\n{self._given(row['answer'])}"
            if observation.phase == "compute":
                relay = self.team == "relay"
                asked, reply = (
                    row["spoken"] if relay else f"{asked}\nThe reasoner says: {row['spoken']}",
                    row["expression"],
                )
            elif self.team == "relay":
                reply = row["spoken"]
            shots += [Message("user", asked), Message("assistant", reply)]
        return Observation((rule, *shots, question), True, (), observation.phase)

    def step(self, actions: dict[Role, str]) -> Rewards:
        if self.team not in ("pair", "relay"):
            return super().step(actions)
        ((role, text),) = actions.items()
        if role == "reasoner":
            return self._hear(text)
        self.said, self.written = None, text
        self.turn += 1
        self.computed = compute(self.task.data["tool"], text, self.task.data["isolation"])
        result = self.computed.result
        agreed = self.answer is not None and result is not None and self.alike(self.answer, result)
        self.over = agreed or self.turn >= self.rounds
        done = {"build": BUILD * self.computed.built, "run": RUN * (result is not None)}
        return self._earn("tool", **done, match=MATCH * self._right(result))

    def _hear(self, text: str) -> Rewards:
        self.said = text
        if self.team == "pair":
            self.answer = self.read(text)
            return self._earn(
                "reasoner", format=FORMAT * (self.answer is not None), match=MATCH * self._right(self.answer)
            )
        words = text.strip()
        passes = 0 < len(words) <= self.task.data["words"] and bool(_WORDS.fullmatch(words))
        self.over = not passes
        self.said = " ".join(words.split()) if passes else None
        return self._earn("reasoner", format=FORMAT * (passes and len(_NUMBERS.findall(words)) >= 2))

    def _earn(self, role: Role, **worth: float) -> Rewards:
        """What this reply is worth more than the role's last one."""
        before, rewards = dict(self.worth), Rewards()
        for name, value in worth.items():
            change = value - before.get(f"{role} {name}", 0.0)
            rewards += (Rewards.agent if name == "match" else Rewards.process)(name, {role: change})
            before[f"{role} {name}"] = value
        self.worth = tuple(before.items())
        return rewards

    def outcome(self) -> Rewards:
        if self.team not in ("pair", "relay"):
            return super().outcome()
        if self.team == "pair":
            return Rewards.team("correct", float(self._right(self.answer)))
        right = self._right(self.computed.result)
        return Rewards.agent("match", {"reasoner": MATCH * right}) + Rewards.team("correct", float(right))

    @property
    def answered(self) -> bool:
        if self.team not in ("pair", "relay"):
            return super().answered
        return (self.answer if self.team == "pair" else self.computed.result) is not None

    def state(self) -> str:
        if self.team not in ("pair", "relay"):
            return super().state()
        lines = [
            self.ask(),
            f"{self.turn} of {self.rounds} rounds played; {', '.join(self.observe()) or 'nobody'} to act",
        ]
        if self.said is not None:
            lines.append(f"said: {quoted(self.said)}")
        if self.answer is not None:
            lines.append(f"answered: {self.answer}")
        if self.turn:
            lines.append(f"computed: {quoted(self.written)} = {self.computed.result or self.computed.trouble}")
        return "\n".join([*lines, f"right: {self.row['answer']}"] if self.over else lines)

    # -- for scripted players -------------------------------------------------------------------------------------

    def script(self, role: Role) -> str:
        if self.team not in ("pair", "relay"):
            return self.gold()
        if role == "reasoner" and self.team == "pair":
            return self.gold()
        if self.task.data["tool"] == "python":
            return f"```python\nprint({self.row['answer']!r})\n```"
        value = verify.number(self.row["answer"])
        if "expression" not in self.row and value is None:
            raise ConfigError(
                f"bot 'expert' cannot compute '{self.row['answer']}' with a calculator; expected rows with numbers for "
                "answers, env.tool = 'python', or env.team = 'single' or 'debate'."
            )
        plain = shown(value or Fraction(0))
        if role == "tool":
            return str(self.row.get("expression") or f"{plain} + 0")
        return str(self.row.get("spoken") or f"{plain} plus 0")

    def script_calls(self, role: Role) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """The row's expression, computed."""
        named, expression = self.task.data["tools"], self.row.get("expression")
        if role == "tool" or not named or not expression:
            return ()
        if "calculator" in named:
            return (("calculator", {"expression": expression}),)
        return (("python", {"code": f"print({expression})"}),)


@lru_cache(maxsize=16)
def _examples(count: int, largest: int) -> tuple[Row, ...]:
    """Training problems of one, two, three, one, … steps."""
    rng = random.Random(0)
    return tuple(word_sums.draw(rng, "train", 1 + n % 3, largest) for n in range(count))

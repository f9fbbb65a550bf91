"""Code that pair and relay share: a reasoner speaks, then a tool role writes something that is computed.

A reply earns the change in its role's worth, so that all rounds add up to the worth of the last reply.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction

from interplay.envs.tasks.compute import Computed, compute
from interplay.envs.tasks.debate import MATCH, quoted
from interplay.envs.tasks.math.question import MathQuestion
from interplay.errors import ConfigError
from interplay.rewards.calculator import shown
from interplay.rewards.quantity import number
from interplay.types import Message, Observation, Rewards, Role, Task

BUILD, RUN = 0.1, 0.1  # as published for the coder; MATCH is the same as its reward for passing


class ReasonerAndTool(MathQuestion):
    roles = ("reasoner", "tool")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: str | None = None  # what the reasoner said, if the tool role must act
        self.answer: str | None = None  # the reasoner's own answer
        self.written: str = ""  # what the tool role wrote
        self.computed = Computed(False, None)  # the result of it
        self.turn = 0  # complete rounds
        self.over = False
        self.worth: tuple[tuple[str, float], ...] = ()  # what the last reply of each role earned, by reward

    # -- defined by a subclass ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def rounds(self) -> int:
        """The largest number of rounds."""

    @abstractmethod
    def for_reasoner(self) -> tuple[Message, ...]: ...

    @abstractmethod
    def for_tool(self, said: str) -> tuple[Message, ...]:
        """What the tool role reads after the reasoner has spoken."""

    @abstractmethod
    def hear(self, text: str) -> Rewards:
        """Take what the reasoner says: set `said`, and `over` if nothing can follow."""

    @property
    @abstractmethod
    def final(self) -> str | None:
        """The team's answer so far."""

    # -- the contract ---------------------------------------------------------------------------------------------

    def seen(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        if self.said is None:
            return {"reasoner": Observation(self.for_reasoner(), True, (), "reason")}
        return {"tool": Observation(self.for_tool(self.said), True, (), "compute")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "reasoner":
            return self.hear(text)
        self.said, self.written = None, text
        self.turn += 1
        self.computed = compute(self.task.data["tool"], text, self.task.data["isolation"])
        result = self.computed.result
        agreed = self.answer is not None and result is not None and self.alike(self.answer, result)
        self.over = agreed or self.turn >= self.rounds
        done = {"build": BUILD * self.computed.built, "run": RUN * (result is not None)}
        return self.earn("tool", **done, match=MATCH * self.is_right(result))

    def is_right(self, answer: str | None) -> bool:
        return answer is not None and self.right(answer)

    def earn(self, role: Role, **worth: float) -> Rewards:
        """How much more this reply is worth than the role's last one."""
        before, rewards = dict(self.worth), Rewards()
        for name, value in worth.items():
            change = value - before.get(f"{role} {name}", 0.0)
            rewards += (Rewards.agent if name == "match" else Rewards.process)(name, {role: change})
            before[f"{role} {name}"] = value
        self.worth = tuple(before.items())
        return rewards

    @property
    def answered(self) -> bool:
        return self.final is not None

    def state(self) -> str:
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
        if self.task.data["tool"] == "python":
            return f"```python\nprint({self.row['answer']!r})\n```"
        value = number(self.row["answer"])
        if "expression" not in self.row and value is None:
            raise ConfigError(
                f"bot 'expert' cannot compute '{self.row['answer']}' with a calculator; expected rows with numbers as "
                "answers, env.tool = 'python', or env.team = 'single' or 'debate'."
            )
        plain = shown(value or Fraction(0))
        if role == "tool":
            return str(self.row.get("expression") or f"{plain} + 0")
        return str(self.row.get("spoken") or f"{plain} plus 0")

"""Math by a relay: the reasoner says in words what to compute; the tool role sees only these words and writes it."""

from __future__ import annotations

import re

from interplay.envs.tasks.data import DataRow
from interplay.envs.tasks.debate import FORMAT, MATCH
from interplay.envs.tasks.math.reasoner_and_tool import ReasonerAndTool
from interplay.rewards.reply import spoken
from interplay.types import Message, Rewards

_WORDS = re.compile(r"[\w\s,.']+")
_NUMBERS = re.compile(r"\d+")
_SPEAK = (
    "Say what must be computed to answer the problem, in words such as plus, minus, times and divided by, from left to "
    "right. Do not use signs and do not compute."
)
_WRITE = "Write what is said as one expression, computed from left to right, with brackets where needed."


class MathRelay(ReasonerAndTool):
    rounds = 1

    def for_reasoner(self) -> tuple[Message, ...]:
        return Message("system", _SPEAK), Message("user", self.ask())

    def for_tool(self, said: str) -> tuple[Message, ...]:
        return Message("system", _WRITE), Message("user", said)

    def example(self, row: DataRow, phase: str) -> tuple[str, str]:
        return (row["spoken"], row["expression"]) if phase == "compute" else (row["question"], row["spoken"])

    def hear(self, text: str) -> Rewards:
        words = spoken(text).strip()
        passes = 0 < len(words) <= self.task.data["words"] and bool(_WORDS.fullmatch(words))
        self.over = not passes
        self.said = " ".join(words.split()) if passes else None
        return self.earn("reasoner", format=FORMAT * (passes and len(_NUMBERS.findall(words)) >= 2))

    @property
    def final(self) -> str | None:
        return self.computed.result

    def outcome(self) -> Rewards:
        right = self.is_right(self.computed.result)
        return Rewards.agent("match", {"reasoner": MATCH * right}) + Rewards.team("correct", float(right))

"""Math by a pair: the reasoner answers; the tool role reads this and computes. They may correct each other."""

from __future__ import annotations

from interplay.envs.tasks.data import DataRow
from interplay.envs.tasks.debate import FORMAT, MATCH, quoted
from interplay.envs.tasks.math.reasoner_and_tool import ReasonerAndTool
from interplay.types import Message, Rewards, Role

_TOOL: dict[str, str] = {
    "calculator": "Write one expression that computes the answer to the problem, with numbers, + - * / // % ** and "
    "brackets. Reply with the expression alone.",
    "python": "Write a Python program that computes the answer to the problem and prints it. Reply with the program "
    "alone, in a ```python block.",
}


class MathPair(ReasonerAndTool):
    @property
    def rounds(self) -> int:
        return int(self.task.data["rounds"])

    def for_reasoner(self) -> tuple[Message, ...]:
        lines = [self.ask()]
        if self.turn:
            result = self.computed.result
            gave = f"refused: {self.computed.trouble}" if result is None else f"which gives {quoted(result)}"
            lines.append(f"You answered {self.answer or 'nothing'} before.")
            lines.append(f"The tool role wrote {quoted(self.written)}, {gave}. Weigh both, then answer again.")
        return Message("system", self.rule), Message("user", "\n".join(lines))

    def for_tool(self, said: str) -> tuple[Message, ...]:
        told = f"{self.ask()}\nThe reasoner says: {quoted(said)}"
        return Message("system", _TOOL[self.task.data["tool"]]), Message("user", told)

    def example(self, row: DataRow, phase: str) -> tuple[str, str]:
        if phase == "compute":
            return f"{row['question']}\nThe reasoner says: {row['spoken']}", row["expression"]
        return super().example(row, phase)

    def hear(self, text: str) -> Rewards:
        self.said, self.answer = text, self.read(text)
        told = self.answer is not None
        return self.earn("reasoner", format=FORMAT * told, match=MATCH * self.is_right(self.answer))

    @property
    def final(self) -> str | None:
        return self.answer

    def outcome(self) -> Rewards:
        return Rewards.team("correct", float(self.is_right(self.answer)))

    def script(self, role: Role) -> str:
        return self.gold() if role == "reasoner" else super().script(role)

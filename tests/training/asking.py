"""An environment with a tool, and a syntax in which a random model calls it often."""

from __future__ import annotations

from typing import Any, ClassVar

from interplay.agents.arguments import Call
from interplay.agents.syntax import Plain, Wanted
from interplay.envs import Env
from interplay.types import Message, Observation, Parameter, Rewards, Role, Task, Tool

ANSWER = "Z7Z7"  # what the tool says, in tokens that the model is never otherwise shown


class Asking(Env):
    """Two turns; a reply earns the share of its characters that are letters."""

    reward_names: ClassVar[tuple[str, ...]] = ("letters",)
    roles = ("asker",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.said: tuple[str, ...] = ()

    def observe(self) -> dict[Role, Observation]:
        if len(self.said) == 2:
            return {}
        tool = Tool("ask", "Answers.", (Parameter("what", "anything"),), lambda what: ANSWER)
        return {"asker": Observation((Message("user", f"turn {len(self.said)}"),), tools=(tool,))}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said += (actions["asker"],)
        return Rewards.process("letters", {"asker": self._worth()})

    def _worth(self) -> float:
        return sum(c.isalpha() for c in self.said[-1]) / (1 + len(self.said[-1]))

    def outcome(self) -> Rewards:
        return Rewards.agent("letters", {"asker": self._worth()})

    def state(self) -> str:
        return repr(self.said)


class Eager(Plain):
    """Takes most of what a random model says as a call."""

    def calls(self, text: str, tools: Any) -> Wanted:
        return [Call(tools[0], {"what": text})] if len(text) % 3 else []

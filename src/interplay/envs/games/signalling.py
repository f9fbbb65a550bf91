"""Signalling (Lewis 1969): the sender sees a state, the receiver must name it, and words do not get through.

Rules         one of `states` states is drawn. The sender sees it and acts. The receiver then names a state.
Roles         sender, then receiver.
Observation   sender: the state. Receiver: a question and, with `talk`, the number that the sender said. Prompts have no
              history.
Actions       sender: `yes` or, with `talk`, the number of a state. Receiver: the number of a state, from 0.
Rewards       `match` (team): 1 if the receiver names the state, else 0. `illegal` (process): −0.1 for a reply that is
              not one of the actions; the episode then ends.
Known answer  1 if something passes the state on: words (with `talk`), or a soft channel between the two agents
              (`[channels]` in a recipe). Otherwise 1/states, because the state is uniform and the receiver's prompt
              does not depend on it.
Version       1
"""

from __future__ import annotations

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.types import Message, Observation, Rewards, Role, Task

NOTHING = "yes"  # the only reply of a sender whose words do not get through


class Options(Section):
    states: int = Field(8, ge=2, le=10, description="number of states")
    talk: bool = Field(False, description="whether the receiver is told what the sender said")


@register("signalling")
class Signalling(Env):
    Options = Options
    reward_names = ("match", "illegal")
    roles: tuple[Role, ...] = ("sender", "receiver")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.hidden = self.rng.randrange(task.data["states"])
        self.said: str | None = None
        self.named: int | None = None
        self.over = False

    @property
    def _numbers(self) -> tuple[str, ...]:
        return tuple(str(n) for n in range(self.task.data["states"]))

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        if self.said is None:
            legal = self._numbers if self.task.data["talk"] else (NOTHING,)
            return {"sender": Observation((Message("user", f"You see {self.hidden}"),), True, legal, "send")}
        told = f" hint: {self.said}" if self.task.data["talk"] else ""
        return {"receiver": Observation((Message("user", f"number?{told}"),), True, self._numbers, "name")}

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if text not in self.observe()[role].legal:
            self.over = True
            return Rewards.process("illegal", {role: PENALTY})
        if role == "sender":
            self.said = text
        else:
            self.named, self.over = int(text), True
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("match", float(self.named == self.hidden))

    def state(self) -> str:
        said = "nothing yet" if self.said is None else self.said
        return f"state: {self.hidden}; said: {said}; named: {'none' if self.named is None else self.named}"

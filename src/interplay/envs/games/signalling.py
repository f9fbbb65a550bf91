"""Signalling (Lewis 1969): a sender sees a state, and a receiver must name it. By default, no words are passed on.

Rules         one of `states` states is drawn. The sender sees it and acts. The receiver then names a state. With
              `alone`, there is only a receiver, and it sees the state itself.
Roles         sender, then receiver; with `alone`, receiver.
Observation   sender: the state, as a number or (`view = "image"`) as a picture of a board with one dark cell, counted
              from the top left, or both. Receiver: a question and, with `talk`, the number that the sender said; with
              `alone`, the state. Prompts have no history.
Actions       sender: `yes` or, with `talk`, the number of a state. Receiver: the number of a state, from 0.
Rewards       `match` (team): 1 if the receiver names the state, else 0. `illegal` (process): −0.1 for a reply that is
              not one of the actions; the episode then ends.
Known answer  1 if the receiver gets to know the state: by words (`talk`), by its own senses (`alone`), or through a
              soft channel between the two agents (`[channels]` in a recipe). Otherwise 1/states, because the state is
              uniform and the receiver's prompt does not depend on it.
Version       1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.picture import Look, draw
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task

NOTHING = "yes"  # the only reply of a sender whose words are not passed on
_SIDE = 4  # cells of the board's side
_LOOKS = {".": Look((255, 255, 255)), "X": Look((255, 255, 255), (30, 30, 120), "square")}


class Options(Section):
    states: int = Field(8, ge=2, le=10, description="number of states")
    talk: bool = Field(False, description="whether the receiver is told what the sender said")
    view: Literal["text", "image", "both"] = Field(
        "text", description="how the state is shown: as a number, as a picture, or both"
    )
    alone: bool = Field(False, description="whether the receiver sees the state itself, and there is no sender")
    cell: int = Field(8, ge=2, le=64, description="width of a cell of the picture in pixels")


@register("signalling")
class Signalling(Env):
    Options = Options
    reward_names = ("match", "illegal")
    roles: tuple[Role, ...] = ("sender", "receiver")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.hidden = self.rng.randrange(task.data["states"])
        self.roles = ("receiver",) if task.data["alone"] else ("sender", "receiver")
        self.said: str | None = None
        self.named: int | None = None
        self.over = False

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"image"} if options.get("view") == "image" else ())

    @property
    def _numbers(self) -> tuple[str, ...]:
        return tuple(str(n) for n in range(self.task.data["states"]))

    def _message(self, words: str) -> Message:
        """Words with the state."""
        view = self.task.data["view"]
        words = words if view == "image" else f"{words} {self.hidden}"
        if view == "text":
            return Message("user", words)
        cells = ["X" if n == self.hidden else "." for n in range(_SIDE * _SIDE)]
        board = "\n".join(" ".join(cells[row : row + _SIDE]) for row in range(0, len(cells), _SIDE))
        return Message("user", words, media=(Media("image", draw(board, _LOOKS, self.task.data["cell"])),))

    def observe(self) -> dict[Role, Observation]:
        data = self.task.data
        if self.over:
            return {}
        if data["alone"]:
            return {"receiver": Observation((self._message("number?"),), True, self._numbers, "name")}
        if self.said is None:
            legal = self._numbers if data["talk"] else (NOTHING,)
            return {"sender": Observation((self._message("You see"),), True, legal, "send")}
        told = f" hint: {self.said}" if data["talk"] else ""
        return {"receiver": Observation((Message("user", f"number?{told}"),), True, self._numbers, "name")}

    def caption(self, role: Role) -> str:
        return str(self.hidden) if role == self.roles[0] and self.task.data["view"] != "text" else ""

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

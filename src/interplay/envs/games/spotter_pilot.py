"""Spotter and pilot: the spotter sees the doors, the pilot hears which door to take, and the spotter must tell it.

Rules         four doors in a row carry the signs U, D, L and R in a random order. The spotter sees the doors and sends
              a message. The pilot hears one of the signs, reads the message, and chooses a door.
Roles         spotter, then pilot. `team = "single"`: the pilot alone sees the doors and hears the sign.
Observation   spotter: a picture of the doors (U a blue disc, D a red square, L a green ring, R dark). Pilot: the sound
              of the wanted sign (as in the environment `hearing`) and the spotter's message. Prompts have no history.
              `mute` shows a grey picture, or plays noise alone, to measure what a sense contributes.
Actions       spotter: free text, cut at 400 characters, or with `speech = "signs"` one of the 24 orders of the signs,
              such as `U L D R`. Pilot: the number of a door, 1 to 4. With `aloud`, it first says the sign that it
              hears, such as `L 2`, and if it is alone, the signs that it sees before that: `U L D R L 2`. Only the
              number counts.
Rewards       `found` (team): 1 for the door with the wanted sign, else 0. `illegal` (process): −0.1 for a reply that
              does not have this form, or (with `speech = "signs"`) is no order of the signs; the episode then ends.
Known answer  1 if they work together perfectly. 1/4 if the spotter tells nothing or the pilot hears nothing, because
              the wanted sign and the order of the doors are independent, and each is uniform.
Version       1
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.games.voice import Voice, hiss
from interplay.envs.picture import Look, draw
from interplay.envs.speech import heard
from interplay.envs.splits import split_of_task
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task

SIGNS = "UDLR"
ORDERS = tuple(" ".join(order) for order in itertools.permutations(SIGNS))
DOORS = tuple(str(n + 1) for n in range(len(SIGNS)))


class Options(Section):
    team: Literal["pair", "single"] = Field(
        "pair", description="spotter and pilot, or the pilot alone with both senses"
    )
    mute: Literal["none", "picture", "sound"] = Field(
        "none", description="what is replaced by a grey picture or by noise, to measure what a sense contributes"
    )
    speech: Literal["free", "signs"] = Field(
        "signs", description="what the spotter may say: any text, or an order of the signs"
    )
    aloud: bool = Field(False, description="the pilot says what it hears and sees before it names a door")
    noise: float = Field(0.1, ge=0, le=2, description="largest strength of the noise; the voice has strength 1")
    cell: int = Field(8, ge=2, le=64, description="width of a door in pixels; its height is four times that")


@cache
def replies(aloud: bool, alone: bool) -> tuple[str, ...]:
    """Everything that the pilot may say."""
    if not aloud:
        return DOORS
    heard_signs = [f"{sign} {door}" for sign in SIGNS for door in DOORS]
    return tuple(f"{order} {said}" for order in ORDERS for said in heard_signs) if alone else tuple(heard_signs)


@register("spotter_pilot")
class SpotterPilot(Env):
    Options = Options
    reward_names = ("found", "illegal")
    looks: ClassVar[Mapping[str, Look]] = {
        "U": Look((255, 255, 255), (30, 80, 220), "disc"),
        "D": Look((255, 255, 255), (200, 30, 30), "square"),
        "L": Look((255, 255, 255), (20, 160, 60), "ring"),
        "R": Look((60, 60, 60)),
    }

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.roles = ("pilot",) if task.data["team"] == "single" else ("spotter", "pilot")
        self.doors = tuple(self.rng.sample(SIGNS, len(SIGNS)))
        self.wanted = self.rng.choice(SIGNS)
        self.voice = Voice.draw(self.rng, split_of_task(task.seed), task.data["noise"])
        self.said: str | None = None
        self.taken: int | None = None
        self.over = False

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"image", "audio"})

    def observe(self) -> dict[Role, Observation]:
        if self.over:
            return {}
        alone = len(self.roles) == 1
        if self.said is None and not alone:
            legal = ORDERS if self.task.data["speech"] == "signs" else ()
            return {"spotter": Observation((Message("user", "", media=(self._picture(),)),), True, legal, "spot")}
        media = (self._picture(), self._sound()) if alone else (self._sound(),)
        legal = replies(self.task.data["aloud"], alone)
        return {"pilot": Observation((Message("user", self.said or "", media=media),), True, legal, "fly")}

    def _picture(self) -> Media:
        muted = self.task.data["mute"] == "picture"
        looks = dict.fromkeys(SIGNS, Look((128, 128, 128))) if muted else self.looks
        board = "\n".join([" ".join(self.doors)] * len(SIGNS))
        return Media("image", draw(board, looks, self.task.data["cell"]))

    def _sound(self) -> Media:
        muted = self.task.data["mute"] == "sound"
        return Media("audio", hiss(self.voice.grain) if muted else self.voice.say(self.wanted))

    def caption(self, role: Role) -> str:
        mute = self.task.data["mute"]
        seen = [] if mute == "picture" else [" ".join(self.doors)]
        heard_sign = [] if mute == "sound" else [self.wanted]
        if len(self.roles) == 1:
            return " ".join(seen + heard_sign)
        return "".join(seen if role == "spotter" else heard_sign)

    def step(self, actions: dict[Role, str]) -> Rewards:
        ((role, text),) = actions.items()
        if role == "spotter":
            if self.task.data["speech"] == "signs" and text not in ORDERS:
                self.over = True
                return Rewards.process("illegal", {role: PENALTY})
            self.said = heard(text)
            return Rewards()
        self.over = True
        if text.strip() not in replies(self.task.data["aloud"], len(self.roles) == 1):
            return Rewards.process("illegal", {role: PENALTY})
        self.taken = int(text.split()[-1]) - 1
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("found", float(self.taken is not None and self.doors[self.taken] == self.wanted))

    def state(self) -> str:
        said = "nothing yet" if self.said is None else self.said
        taken = "none" if self.taken is None else str(self.taken + 1)
        return f"doors: {' '.join(self.doors)}; wanted: {self.wanted}; said: {said}; taken: {taken}"

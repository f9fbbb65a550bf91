"""Hearing: the listener hears a sequence of moves as sounds and writes it down.

Rules         an order is a sequence of `length` moves, each U, D, L or R. Each move is one note with a changing pitch:
              U rises, D falls, L falls and rises again, R rises and falls again. With `speech = "words"` it is spoken
              in English by eSpeak NG (up, down, left, right). The voice, the speed and the noise differ between tasks.
              Each split has its own voices, and with words its own speeds.
Roles         listener.
Observation   the sound (WAV, 8,000 samples a second). No text describes it.
Actions       the moves in order, such as `U, R` (words and other separators are read too). A reply ends the episode.
Rewards       `followed` (agent): 1 if every move is right, else 0. `heard` (agent): the share of moves that are right.
              `illegal` (process): −0.1 for a reply that cannot be read or has the wrong number of moves.
Difficulty    length, noise.
Version       1
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.games.grid import DIRECTIONS, read_directions
from interplay.envs.games.speaker import Speaker
from interplay.envs.games.voice import Voice
from interplay.envs.splits import split_of_task
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task


class Options(Section):
    speech: Literal["tones", "words"] = Field(
        "tones", description="how an order sounds: as notes, or spoken (needs the extra `speech`)"
    )
    length: int = Field(1, ge=1, le=4, description="number of moves in an order")
    noise: float = Field(0.1, ge=0, le=2, description="largest strength of the noise; the voice has strength 1")


@register("hearing")
class Hearing(Env):
    Options = Options
    reward_names = ("followed", "heard", "illegal")
    roles: tuple[Role, ...] = ("listener",)

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.order = tuple(self.rng.choice(list(DIRECTIONS)) for _ in range(task.data["length"]))
        kind = Speaker if task.data["speech"] == "words" else Voice
        self.voice: Voice | Speaker = kind.draw(self.rng, split_of_task(task.seed), task.data["noise"])
        self.said: list[str] | None = None
        self.done = False

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"audio"})

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {"length": len(self.order), "noise": self.voice.noise}

    def observe(self) -> dict[Role, Observation]:
        if self.done:
            return {}
        legal = tuple(", ".join(moves) for moves in itertools.product(DIRECTIONS, repeat=len(self.order)))
        sound = Media("audio", self.voice.say(self.order))
        return {"listener": Observation((Message("user", "", media=(sound,)),), True, legal)}

    def caption(self, role: Role) -> str:
        return ", ".join(self.order)

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.done = True
        text = actions["listener"]
        moves = read_directions(text) if len(text) <= 100 else None
        if moves is None or len(moves) != len(self.order):
            return Rewards.process("illegal", {"listener": PENALTY})
        self.said = moves
        return Rewards()

    def outcome(self) -> Rewards:
        right = [a == b for a, b in zip(self.order, self.said or (), strict=False)]
        share = sum(right) / len(self.order)
        return Rewards.agent("followed", {"listener": float(share == 1.0)}) + Rewards.agent(
            "heard", {"listener": share}
        )

    def state(self) -> str:
        return f"order: {', '.join(self.order)}; said: {', '.join(self.said or ['nothing'])}"

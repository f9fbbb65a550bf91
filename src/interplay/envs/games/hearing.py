"""Hearing: an order is sounded, and the listener writes it down.

Rules         an order is `length` of the moves U, D, L and R. Each sounds as one note whose pitch moves: U rises, D
              falls, L dips and comes back, R climbs and comes back. The voice (pitch and timbre), the speed and the
              noise differ from task to task. Voices of one split never sound in another.
Roles         listener.
Observation   the sound (WAV, 8,000 samples a second). There are no words that say the same.
Actions       the moves in order, such as `U, R` (words and other separators are read too). A reply ends the episode.
Rewards       `followed` (agent): 1 if every move is right, else 0. `heard` (agent): the share of moves that are right.
              `illegal` (process): −0.1 for a reply that cannot be read or has another number of moves.
Difficulty    length, noise.
Version       1
"""

from __future__ import annotations

import io
import itertools
import math
import wave
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from interplay.config import Section
from interplay.envs.env import PENALTY, Env, register
from interplay.envs.games.grid import DIRECTIONS, read_directions
from interplay.envs.splits import SPLITS, split_of_task
from interplay.types import Media, MediaKind, Message, Observation, Rewards, Role, Task

RATE = 8_000  # samples a second
_VOICES = 30  # semitones from the lowest voice to the highest; each third one belongs to the same split
_LOWEST = 180.0  # Hz


class Options(Section):
    length: int = Field(1, ge=1, le=4, description="moves in an order")
    noise: float = Field(0.1, ge=0, le=2, description="largest strength of the noise; the voice has strength 1")


@register("hearing")
class Hearing(Env):
    Options = Options
    reward_names = ("followed", "heard", "illegal")
    roles: tuple[Role, ...] = ("listener",)
    _BENDS: ClassVar[dict[str, tuple[float, float, float]]] = {  # octaves at the start, the middle and the end
        "U": (0.0, 0.5, 1.0),
        "D": (1.0, 0.5, 0.0),
        "L": (0.8, 0.0, 0.8),
        "R": (0.2, 1.0, 0.2),
    }

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.order = tuple(self.rng.choice(list(DIRECTIONS)) for _ in range(task.data["length"]))
        ours = range(SPLITS.index(split_of_task(task.seed)), _VOICES, len(SPLITS))
        self.pitch = _LOWEST * 2 ** (self.rng.choice(ours) / 12)
        self.timbre = self.rng.uniform(0.1, 0.7)  # strength of the second harmonic
        self.speed = self.rng.uniform(0.8, 1.4)
        self.noise = self.rng.uniform(0.0, task.data["noise"])
        self.grain = self.rng.getrandbits(32)
        self.said: list[str] | None = None
        self.done = False

    @classmethod
    def needs(cls, options: Mapping[str, Any]) -> frozenset[MediaKind]:
        return frozenset({"audio"})

    @property
    def difficulty(self) -> Mapping[str, float]:
        return {"length": len(self.order), "noise": self.noise}

    def observe(self) -> dict[Role, Observation]:
        if self.done:
            return {}
        legal = tuple(", ".join(moves) for moves in itertools.product(DIRECTIONS, repeat=len(self.order)))
        return {"listener": Observation((Message("user", "", media=(Media("audio", self._sound()),)),), True, legal)}

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

    def _sound(self) -> bytes:
        """The order as a WAV file: one note for each move, with short pauses between."""
        import numpy as np

        pause = np.zeros(int(0.05 * RATE / self.speed))
        parts = [pause]
        for move in self.order:
            time = np.linspace(0.0, 1.0, int(0.3 * RATE / self.speed))
            octaves = np.interp(time, (0.0, 0.5, 1.0), self._BENDS[move])
            angle = 2 * math.pi * np.cumsum(self.pitch * 2.0**octaves) / RATE
            note = np.sin(angle) + self.timbre * np.sin(2 * angle) + 0.5 * self.timbre * np.sin(3 * angle)
            parts += [note * np.sin(math.pi * time) ** 0.5, pause]
        clean = np.concatenate(parts)
        noisy = clean + self.noise * np.random.default_rng(self.grain).standard_normal(len(clean))
        samples = (noisy / np.abs(noisy).max() * 30_000).astype("<i2")
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(samples.tobytes())
        return out.getvalue()

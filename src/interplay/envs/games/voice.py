"""Voices that play moves as sounds: U rises, D falls, L falls and comes back, R rises and comes back.

A voice is a pitch, a timbre and a speed, with noise. Voices of one split are never used in another, so that a test
measures whether the moves are understood, and not whether a voice was heard before.
"""

from __future__ import annotations

import io
import math
import random
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from interplay.envs.splits import SPLITS

RATE = 8_000  # samples per second
_VOICES = 30  # semitones from the lowest voice to the highest; every third one belongs to the same split
_LOWEST = 180.0  # Hz
_BENDS = {  # octaves at the start, the middle and the end of a note
    "U": (0.0, 0.5, 1.0),
    "D": (1.0, 0.5, 0.0),
    "L": (0.8, 0.0, 0.8),
    "R": (0.2, 1.0, 0.2),
}


@dataclass(frozen=True, slots=True)
class Voice:
    """`timbre` is the strength of the second harmonic, `noise` that of the noise. `grain` seeds the noise."""

    pitch: float
    timbre: float
    speed: float
    noise: float
    grain: int

    @staticmethod
    def draw(rng: random.Random, split: str, noise: float) -> Voice:
        """A voice of a split, with noise of at most this strength."""
        ours = range(SPLITS.index(split), _VOICES, len(SPLITS))
        pitch = _LOWEST * 2 ** (rng.choice(ours) / 12)
        return Voice(pitch, rng.uniform(0.1, 0.7), rng.uniform(0.8, 1.4), rng.uniform(0.0, noise), rng.getrandbits(32))

    def say(self, moves: Sequence[str]) -> bytes:
        """The moves as a WAV file: one note for each, with short pauses between them."""
        import numpy as np

        pause = np.zeros(int(0.05 * RATE / self.speed))
        parts = [pause]
        for move in moves:
            time = np.linspace(0.0, 1.0, int(0.3 * RATE / self.speed))
            octaves = np.interp(time, (0.0, 0.5, 1.0), _BENDS[move])
            angle = 2 * math.pi * np.cumsum(self.pitch * 2.0**octaves) / RATE
            note = np.sin(angle) + self.timbre * np.sin(2 * angle) + 0.5 * self.timbre * np.sin(3 * angle)
            parts += [note * np.sin(math.pi * time) ** 0.5, pause]
        return recorded(np.concatenate(parts), self.noise, self.grain)


def recorded(clean: Any, noise: float, grain: int) -> bytes:
    """A sound with noise of this strength as a WAV file. `grain` decides the samples of the noise."""
    import numpy as np

    noisy = clean + noise * np.random.default_rng(grain).standard_normal(len(clean))
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((noisy / np.abs(noisy).max() * 30_000).astype("<i2").tobytes())
    return out.getvalue()


def hiss(grain: int) -> bytes:
    """Half a second of noise, in which nothing is said."""
    import numpy as np

    return recorded(np.zeros(RATE // 2), 1.0, grain)

"""Voices that speak moves in English words, made with eSpeak NG (from the package `espeakng-loader`).

A recording of eSpeak depends on what it said before. All words of a split are therefore recorded once, in a fixed
order, by a new process (this file, run as a script), and kept in memory. The splits have different voices and speeds.
"""

from __future__ import annotations

import ctypes
import io
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import product
from typing import Any

RATE = 22_050  # samples a second of eSpeak NG
WORDS = {"U": "up", "D": "down", "L": "left", "R": "right"}
VOICES = {
    "train": (
        "m1", "m3", "m5", "m7", "f1", "Denis", "Hugo", "klatt", "klatt3", "croak", "Andrea", "Andy", "Annie", "Lee",
        "Mario", "Michael", "adam", "anika", "belinda", "benjamin", "caleb", "david", "ed", "edward", "grandpa", "iven",
        "john", "linda", "max", "rob",
    ),
    "validation": ("m2", "m6", "Diogo", "klatt4", "Jacky", "ian", "marcelo", "steph"),
    "test": ("m4", "m8", "f4", "klatt2", "Alex", "Gene", "boris", "grandma", "michel", "norbert", "paul", "robert"),
}  # fmt: skip
SPEEDS = {"train": (110, 130, 150, 170, 190, 210), "validation": (120, 160, 200), "test": (125, 140, 165, 180, 195)}


@dataclass(frozen=True, slots=True)
class Speaker:
    """A voice of eSpeak NG and its speed in words a minute. `noise` is the strength of the noise, and `grain` seeds
    it."""

    split: str
    voice: str
    speed: int
    noise: float
    grain: int

    @staticmethod
    def draw(rng: random.Random, split: str, noise: float) -> Speaker:
        """A voice of a split, with noise of at most this strength."""
        voice, speed = rng.choice(VOICES[split]), rng.choice(SPEEDS[split])
        return Speaker(split, voice, speed, rng.uniform(0.0, noise), rng.getrandbits(32))

    def say(self, moves: Sequence[str]) -> bytes:
        """Moves as a WAV file: one word for each, with short pauses between. The words have strength 1: the power of a
        tone of that strength."""
        import numpy as np
        from scipy.signal import resample_poly

        from interplay.envs.games.voice import RATE as OURS
        from interplay.envs.games.voice import recorded

        known = recordings(self.split)
        pause = np.zeros(int(0.05 * OURS))
        parts = [pause]
        for move in moves:
            word = resample_poly(known[self.voice, self.speed, move].astype(float), OURS // 50, RATE // 50)
            parts += [word / np.sqrt(2 * np.mean(word**2)), pause]
        return recorded(np.concatenate(parts), self.noise, self.grain)


@lru_cache(maxsize=3)
def recordings(split: str) -> dict[tuple[str, int, str], Any]:
    """What the voices of a split say: 16-bit samples by voice, speed (words a minute) and move."""
    import numpy as np

    if find_spec("espeakng_loader") is None:
        from interplay.errors import ConfigError

        raise ConfigError("env.speech = \"words\" needs eSpeak NG: pip install 'interplay[speech]'.")
    made = subprocess.run([sys.executable, __file__, split], capture_output=True, check=True)
    with np.load(io.BytesIO(made.stdout)) as file:
        sounds = {name: file[name] for name in file.files}
    return {key: sounds[_name(*key)] for key in _keys(split)}


def _keys(split: str) -> list[tuple[str, int, str]]:
    return list(product(VOICES[split], SPEEDS[split], WORDS))


def _name(voice: str, speed: int, move: str) -> str:
    return f"{voice} {speed} {move}"


def _record(split: str) -> dict[str, Any]:
    """Say every word of a split, one after the other."""
    import espeakng_loader
    import numpy as np

    said: list[Any] = []

    def keep(samples: Any, count: int, _: Any) -> int:
        if samples and count > 0:
            said.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)
    callback, library = kind(keep), ctypes.CDLL(espeakng_loader.get_library_path())
    synchronous, rate, utf8 = 2, 1, 1  # constants of eSpeak's speak_lib.h
    if library.espeak_Initialize(synchronous, 0, espeakng_loader.get_data_path().encode(), 0) != RATE:
        raise RuntimeError(f"eSpeak NG did not start with {RATE} samples a second")
    library.espeak_SetSynthCallback(callback)
    out = {}
    for voice, speed, move in _keys(split):
        if library.espeak_SetVoiceByName(f"en-us+{voice}".encode()):
            raise RuntimeError(f"eSpeak NG has no voice {voice}")
        library.espeak_SetParameter(rate, speed, 0)
        said.clear()
        word = WORDS[move].encode()
        library.espeak_Synth(word, len(word) + 1, 0, 1, 0, utf8, None, None)
        library.espeak_Synchronize()
        out[_name(voice, speed, move)] = np.concatenate(said)
    return out


if __name__ == "__main__":
    import numpy

    numpy.savez(sys.stdout.buffer, **_record(sys.argv[1]))

"""Joint decisions as plain records, kept for networks that learn from more than the last batch. No torch.

A `Step` is what everybody did at one decision, under the global state. Texts become hashed words, so that the networks
need no tokenizer and any text fits.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interplay.algorithms.credit import mix
from interplay.config import RewardSection
from interplay.types import Episode, Role, Turn

BUCKETS = 2048
Bag = tuple[int, ...]


def bag(*words: str) -> Bag:
    return tuple(zlib.crc32(word.encode()) % BUCKETS for word in words)


def history(turn: Turn) -> Bag:
    """What an agent knew: its role, its prompt as a whole, and the prompt's last tokens."""
    return bag(turn.role, f"{turn.role}:{turn.keys.prompt}", *(f"{turn.role}#{t}" for t in turn.asked[-32:]))


def said(text: str) -> Bag:
    return bag(text, *(f"'{word}" for word in text.split()[:32]))


@dataclass(frozen=True)
class Move:
    role: Role
    history: Bag
    action: str
    legal: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """`rewards` of each role here, and `returns` from here on."""

    decision: int
    state: str
    moves: tuple[Move, ...]
    rewards: Mapping[Role, float]
    returns: Mapping[Role, float]

    def team(self, values: Mapping[Role, float]) -> float:
        """One number for everybody: the mean of the roles'."""
        return sum(values.values()) / len(values)


def steps(episode: Episode, weights: RewardSection) -> list[Step]:
    """The decisions of the line that was played, in order."""
    by_decision: dict[int, list[Turn]] = {}
    for turn in episode.line():
        by_decision.setdefault(turn.decision, []).append(turn)
    out: list[Step] = []
    ahead = dict.fromkeys(episode.seats, 0.0)
    for turns in reversed(by_decision.values()):
        rewards = dict.fromkeys(episode.seats, 0.0)
        rewards |= {t.role: mix(t.rewards, t.role, weights) for t in turns}
        ahead = {role: rewards[role] + weights.gamma * ahead[role] for role in ahead}
        moves = tuple(Move(t.role, history(t), t.text, t.legal) for t in turns)
        out.append(Step(turns[0].decision, turns[0].state, moves, rewards, ahead))
    return out[::-1]


class Replay:
    """The last `size` episodes; a sample is (step, the step after it or None), drawn by `seed`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.episodes: list[list[Step]] = []

    def add(self, episodes: Iterable[list[Step]]) -> None:
        self.episodes = [*self.episodes, *(e for e in episodes if e)][-self.size :]

    def sample(self, count: int, seed: int) -> list[tuple[Step, Step | None]]:
        rng = random.Random(seed)
        out: list[tuple[Step, Step | None]] = []
        for _ in range(count):
            episode = rng.choice(self.episodes)
            i = rng.randrange(len(episode))
            out.append((episode[i], episode[i + 1] if i + 1 < len(episode) else None))
        return out

    def state_dict(self) -> list[Any]:
        return [[asdict(step) for step in episode] for episode in self.episodes]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        self.episodes = [[_step(step) for step in episode] for episode in state]


def _step(data: Mapping[str, Any]) -> Step:
    moves = tuple(Move(m["role"], tuple(m["history"]), m["action"], tuple(m["legal"])) for m in data["moves"])
    return Step(data["decision"], data["state"], moves, data["rewards"], data["returns"])

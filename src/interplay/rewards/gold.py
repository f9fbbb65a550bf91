"""Raters whose mistakes are known: a gold score, seen through temperature, noise and bias. No torch.

They stand for people. A preference model is trained on what a rater says, and tested by the gold score itself, which it
never saw. A rater of temperature 0 with no noise and no bias *is* the gold judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from interplay.rewards.preference import Verdict
from interplay.types import Reward, Role, seed_of

GOLD = "gold:"  # before the name of a reward component: the program that says what a reply is worth


@dataclass(frozen=True, slots=True)
class Scored:
    """A reply and what it is worth."""

    text: str
    score: float


@dataclass(frozen=True)
class Rater:
    """Prefers the first of two with σ((gold₁ − gold₂) / temperature + length · (characters₁ − characters₂) / 100 +
    first), and says the opposite of what it means with probability `noise`. At temperature 0 the difference decides,
    then the biases; equal in all, it is a tie."""

    temperature: float = 0.0
    noise: float = 0.0
    length: float = 0.0
    first: float = 0.0
    seed: int = 0

    def probability(self, one: Scored, other: Scored) -> float:
        """That it says `one`, shown first, is better."""
        gap = one.score - other.score
        bias = self.length * (len(one.text) - len(other.text)) / 100 + self.first
        if self.temperature > 0:
            meant = _sigmoid(gap / self.temperature + bias)
        elif bias:
            meant = _sigmoid(bias) if gap == 0 else float(gap > 0)
        else:
            meant = 0.5 if gap == 0 else float(gap > 0)
        return meant * (1 - self.noise) + (1 - meant) * self.noise

    def label(self, name: str, one: Scored, other: Scored) -> float:
        """What it says, drawn by the pair's name: 1 for the first, 0 for the second; ½ where it sees no difference."""
        p = self.probability(one, other)
        if p == 0.5:
            return 0.5
        return float(seed_of("rater", self.seed, name) / 2**63 < p)

    def verdict(self, one: Scored, other: Scored) -> Verdict:
        p = self.probability(one, other)
        return Verdict(p, tie=float(p == 0.5))


def worth(rewards: Iterable[Reward], name: str, role: Role) -> float | None:
    """What a component of the reward came to for a role, its own and the team's; None where it was never scored."""
    found = [r.value for r in rewards if r.name == name and (r.role is None or r.role == role)]
    scored = [v for v in found if v is not None]
    return sum(scored) if scored and len(scored) == len(found) else None


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

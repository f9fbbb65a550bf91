"""Raters with known errors: a gold score, changed by temperature, noise and bias. No torch.

They stand for people. A preference model is trained on a rater's labels, and tested with the gold score itself, which
it never saw. A rater with temperature 0, no noise and no bias equals the gold judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from interplay.rewards.preference import Verdict
from interplay.types import Reward, Role, seed_of

GOLD = "gold:"  # prefix of the name of a reward component whose value is the gold score of a reply


@dataclass(frozen=True, slots=True)
class Scored:
    """A reply and its gold score."""

    text: str
    score: float


@dataclass(frozen=True)
class Rater:
    """Prefers the first of two with probability σ((gold₁ − gold₂) / temperature + length · (characters₁ − characters₂)
    / 100 + first), and gives the opposite label with probability `noise`. At temperature 0 the difference decides, then
    the biases; if all are equal, it is a tie."""

    temperature: float = 0.0
    noise: float = 0.0
    length: float = 0.0
    first: float = 0.0
    seed: int = 0

    def probability(self, one: Scored, other: Scored) -> float:
        """The probability that it says that `one`, which is shown first, is better."""
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
        """Its label, drawn with the pair's name as seed: 1 for the first, 0 for the second, ½ for no difference."""
        p = self.probability(one, other)
        if p == 0.5:
            return 0.5
        return float(seed_of("rater", self.seed, name) / 2**63 < p)

    def verdict(self, one: Scored, other: Scored) -> Verdict:
        p = self.probability(one, other)
        return Verdict(p, tie=float(p == 0.5))


def component_sum(rewards: Iterable[Reward], name: str, role: Role) -> float | None:
    """The sum of a component of the reward for a role, its own and the team's; None if it was never scored."""
    found = [r.value for r in rewards if r.name == name and (r.role is None or r.role == role)]
    scored = [v for v in found if v is not None]
    return sum(scored) if scored and len(scored) == len(found) else None


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))

"""The scale of what a critic is taught: a running mean and deviation of its targets.

PopArt (1602.07714): the critic's head predicts in units of this deviation around this mean, so that its loss and its
step size do not depend on how large returns are. When the scale moves, the head is changed so that every value stays
what it was. MAPPO (2103.01955, sec. 5.1) found it to matter in most of its games.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

MEMORY = 0.99  # of the running moments, from one training step to the next
LEAST = 0.1  # deviation: equal returns are not blown up


class ValueScale:
    def __init__(self) -> None:
        self.weight = self.first = self.second = 0.0  # of the steps seen; sums of targets and of their squares

    @property
    def mean(self) -> float:
        return self.first / self.weight if self.weight else 0.0

    @property
    def deviation(self) -> float:
        if not self.weight:
            return 1.0
        return math.sqrt(max(self.second / self.weight - self.mean**2, LEAST**2))

    def follow(self, targets: Sequence[float], head: nn.Linear) -> None:
        """Take note of a step's targets, and keep all that `head` says in their units as it is. The first time there is
        nothing to keep: a head that says 0 then says their mean."""
        if not targets or not all(map(math.isfinite, targets)):
            return
        first, mean, deviation, count = not self.weight, self.mean, self.deviation, len(targets)
        self.weight = MEMORY * self.weight + (1 - MEMORY)
        self.first = MEMORY * self.first + (1 - MEMORY) * math.fsum(targets) / count
        self.second = MEMORY * self.second + (1 - MEMORY) * math.fsum(t * t for t in targets) / count
        if first:
            return
        with torch.no_grad():
            head.weight.mul_(deviation / self.deviation)
            head.bias.mul_(deviation).add_(mean - self.mean).div_(self.deviation)

    def inner(self, value: float) -> float:
        """A return, in the head's units."""
        return (value - self.mean) / self.deviation

    def outer(self, value: float) -> float:
        """What the head says, as a return."""
        return value * self.deviation + self.mean

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight, "first": self.first, "second": self.second}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.weight, self.first, self.second = state["weight"], state["first"], state["second"]

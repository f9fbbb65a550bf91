"""The scale of a critic's targets: their running mean and standard deviation.

PopArt (1602.07714): the critic's head predicts normalised targets, so that its loss and its step size do not depend on
the size of returns. When the scale changes, the head is adjusted so that every predicted value stays the same. MAPPO
(2103.01955, sec. 5.1) found this to matter in most of its games.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

MEMORY = 0.99  # decay of the running moments per training step
LEAST = 0.1  # smallest deviation, so that nearly equal returns are not scaled up


class ValueScale:
    def __init__(self) -> None:
        self.weight = self.first = self.second = 0.0  # running sums: weights, targets, their squares

    @property
    def mean(self) -> float:
        return self.first / self.weight if self.weight else 0.0

    @property
    def deviation(self) -> float:
        if not self.weight:
            return 1.0
        return math.sqrt(max(self.second / self.weight - self.mean**2, LEAST**2))

    def follow(self, targets: Sequence[float], head: nn.Linear) -> None:
        """Update the scale with the targets of a step, and adjust `head` so that its values stay the same. The first
        time, the head is not adjusted: an output of 0 then stands for the mean of the targets."""
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
        """Convert a return to the head's units."""
        return (value - self.mean) / self.deviation

    def outer(self, value: float) -> float:
        """Convert an output of the head to a return."""
        return value * self.deviation + self.mean

    def state_dict(self) -> dict[str, float]:
        return {"weight": self.weight, "first": self.first, "second": self.second}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.weight, self.first, self.second = state["weight"], state["first"], state["second"]

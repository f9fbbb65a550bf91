"""The interface of a learner: the parameters, optimiser and schedule of one policy.

Every policy has its own, so a step of one policy leaves the others bit-identical. A policy without tokens takes no
step. `local.py` is a learner with its model in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from interplay.algorithms.losses import Outputs, Targets
from interplay.config import TrainSection
from interplay.training.tries import Example

Loss = Callable[[Targets, Outputs], tuple[Tensor, dict[str, float]]]


@dataclass(frozen=True)
class Objective:
    """What a step minimises: a loss over tokens, what its mean is taken over, and whether tokens with zero advantage
    still have a gradient (from an entropy bonus or a KL penalty). Tokens whose weights are more than `staleness`
    training steps old are left out of both the loss and its mean."""

    loss: Loss
    average: str | int = "token"
    keep_zeros: bool = False
    staleness: int = 0


class Learner(Protocol):
    name: str
    config: TrainSection
    steps: int  # training steps taken

    def logprobs(self, examples: Sequence[Example]) -> list[list[float]]:
        """log π(action | prompt) of each sample under the current weights."""
        ...

    def values(self, examples: Sequence[Example], tokens: bool) -> list[tuple[float, ...]]:
        """The critic's value at the end of each prompt or, with `tokens`, before each sampled token."""
        ...

    def step(self, examples: Sequence[Example], objective: Objective) -> dict[str, float]:
        """One training step over credited samples: epochs × minibatches optimiser steps. Returns metrics."""
        ...

    def fit(self, examples: Sequence[Example], tokens: bool) -> dict[str, float]:
        """One training step of the critic towards the examples' targets."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The trained tensors by name."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
